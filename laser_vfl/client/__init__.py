"""The client daemon of one organisation: its block, its models, its streams to the others."""

from laser_vfl.transport import speak_only_tls_1_3

speak_only_tls_1_3()
