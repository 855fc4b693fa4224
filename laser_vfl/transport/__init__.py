"""How things cross the network: tensors, channels, servers, TLS, limits, errors as gRPC status."""

import os

NO_CIPHER_OF_TLS_1_2 = "ECDHE-PSK-CHACHA20-POLY1305"
"""Needs a key that both sides have beforehand, and nobody has one."""


def speak_only_tls_1_3() -> None:
    """Have gRPC refuse TLS 1.2, for which it has no option; call this before it is imported.

    TLS 1.3 has ciphers of its own, to which the list does not apply.
    """
    os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", NO_CIPHER_OF_TLS_1_2)
