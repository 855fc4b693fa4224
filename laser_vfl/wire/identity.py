"""Whom a connection's certificate names."""

from typing import Any

import grpc.aio


def caller_name(context: "grpc.aio.ServicerContext[Any, Any]") -> str | None:
    """Return the common name of the caller's certificate; None on a plaintext connection."""
    auth = context.auth_context()
    if auth.get("transport_security_type") != [b"ssl"]:
        return None
    return next((name.decode("utf-8", "replace") for name in auth.get("x509_common_name", ())), "")
