"""How a daemon is reached from outside: credentials, channels, and calls that fail in words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import grpc

from laser_vfl.config.address import Address
from laser_vfl.core import errors
from laser_vfl.wire.credentials import CHECK_TLS, Credentials, load_credentials
from laser_vfl.wire.protocol import FRAME_OPTIONS, KEEPALIVE
from laser_vfl.wire.status import FailedCall, error_from, is_ours

_OPTIONS = [
    *KEEPALIVE,
    *FRAME_OPTIONS,
    # What is meant for loopback must not go to a proxy.
    ("grpc.enable_http_proxy", 0),
    # An application outlives the daemon that it asks; gRPC would wait two minutes.
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def credentials_for(
    address: str, ca: str | Path | None, cert: str | Path | None, key: str | Path | None
) -> Credentials:
    """Return what to present to a daemon: three files, or nothing at all on loopback."""
    dialled = _dialled(address)
    if ca and cert and key:
        try:
            return load_credentials(Path(ca), Path(cert), Path(key))
        except errors.IdentityError as error:
            hint = "check ca, cert and key" if error.hint == CHECK_TLS else error.hint
            raise errors.IdentityError(error.message, hint=hint, where=error.where) from None
    given = {"ca": ca, "cert": cert, "key": key}
    if any(given.values()):
        lacking = " and ".join(name for name, path in given.items() if not path)
        raise errors.ConfigError(
            f"TLS needs ca, cert and key; {lacking} not given", hint="give all three or none"
        )
    if not dialled.is_loopback:
        raise errors.IdentityError(
            f"{dialled} is not on loopback, and there is no certificate to reach it with",
            hint="give ca, cert and key",
        )
    return Credentials()


def open_channel(address: str, credentials: Credentials) -> grpc.Channel:
    """Return a channel for many threads; nothing is dialled before the first call."""
    target = str(_dialled(address))
    if credentials.secure:
        return grpc.secure_channel(target, credentials.for_channel(), options=_OPTIONS)
    return grpc.insecure_channel(target, options=_OPTIONS)


def call(ask: Callable[..., Any], request: Any, address: str, timeout_s: float) -> Any:
    """Return what a daemon answers; a call that fails is an error of ours, for a person."""
    try:
        return ask(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise _explained(cast(FailedCall, error), address, timeout_s) from None


def _dialled(text: str) -> Address:
    address = Address.parse(text)
    if address.is_wildcard or address.port == 0:
        raise errors.ConfigError(
            f"nobody can be reached at {address}", hint="give the address of the ready line"
        )
    return address


def _explained(error: FailedCall, address: str, timeout_s: float) -> errors.LaserError:
    details = error.details() or ""
    if is_ours(error) or "handshake failed" in details.lower():
        return error_from(error, doing=f"asking {address}", hint="")
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        hint = "is the daemon up, and are both sides on TLS or both without?"
        return errors.AddressError(f"nobody answers at {address}", hint=hint)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.AddressError(
            f"{address} did not answer within {timeout_s:g} s", hint="allow more time, or try again"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            return errors.DataError(
                "this is too much for one request", hint="ask for fewer samples at a time"
            )
        return errors.LimitExceeded(f"{address} is too busy", hint="try again later")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.MismatchError(
            f"the daemon at {address} does not answer such questions",
            hint="is it the right address, and the same release?",
        )
    return error_from(error, doing=f"asking {address}")
