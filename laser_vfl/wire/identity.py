"""Whom a connection's certificate names."""

from dataclasses import dataclass
from typing import Any

import grpc.aio

from laser_vfl.core.errors import IdentityError, quoted


@dataclass(frozen=True)
class Caller:
    """Who calls, and whether a certificate says so."""

    name: str
    is_certified: bool


def caller_name(context: "grpc.aio.ServicerContext[Any, Any]") -> str | None:
    """Return the common name of the caller's certificate; None on a plaintext connection."""
    auth = context.auth_context()
    if auth.get("transport_security_type") != [b"ssl"]:
        return None
    return next((name.decode("utf-8", "replace") for name in auth.get("x509_common_name", ())), "")


def identify(claimed: str, context: "grpc.aio.ServicerContext[Any, Any]") -> Caller:
    """Return who calls: whom the certificate names, or, without TLS, who it says it is."""
    name = caller_name(context)
    if name is None:
        return Caller(claimed, is_certified=False)
    if name != claimed:
        raise IdentityError(
            f"the certificate names {quoted(name)}, not {quoted(claimed)}",
            hint="a client's certificate has its name in the roster as common name",
        )
    return Caller(name, is_certified=True)
