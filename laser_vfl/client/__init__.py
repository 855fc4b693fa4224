"""The client daemon of one organisation: its block, its models, its links to the others."""

from laser_vfl.wire import speak_only_tls_1_3

speak_only_tls_1_3()
