"""The coordinator daemon: who is in the federation, which sample has which blocks, one seed."""

from laser_vfl.transport import speak_only_tls_1_3

speak_only_tls_1_3()
