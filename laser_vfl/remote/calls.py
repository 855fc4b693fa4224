"""Calling a daemon from outside: credentials, channels, and failed calls as errors of ours."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc

from laser_vfl.config.address import Address
from laser_vfl.core import errors
from laser_vfl.security.credentials import (
    CHECK_TLS,
    CredentialFiles,
    Credentials,
    load_credentials,
    read_authority,
)
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from laser_vfl.transport.grpc_status import FailedCall, error_from, is_ours
from laser_vfl.transport.grpc_texts import exceeds_limit, has_wrong_name, is_tls_failure
from laser_vfl.transport.message_limits import APPLICATION_OPTIONS
from laser_vfl.transport.protocol import KEEPALIVE

_OPTIONS = [
    *KEEPALIVE,
    *APPLICATION_OPTIONS,
    # Calls to loopback must not go through a proxy.
    ("grpc.enable_http_proxy", 0),
    # An application may outlive a daemon; gRPC would wait two minutes before it dials again.
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


MIN_TIMEOUT_S = 0.1
"""What a call has at the end of a wait, so that it is not over before it begins."""

File = str | Path | None


@dataclass(frozen=True)
class Access:
    """Our credentials, and the name that the daemon's certificate must have; empty is plaintext."""

    credentials: grpc.ChannelCredentials | None = None
    name: str = ""
    token: str | None = field(default=None, repr=False)


def coordinator_access(address: str, ca: File, cert: File, key: File) -> Access:
    """Return how to reach a coordinator: with three files, or with nothing at all on loopback."""
    credentials = _credentials(address, ca, cert, key)
    return access_to(credentials, coordinator_of(credentials.federation))


def client_access(
    address: str,
    ca: File,
    cert: File,
    key: File,
    token: str | None = None,
    name: str | None = None,
) -> Access:
    """Return how to reach a client where it predicts.

    A certificate says which client it may ask. With a token, `name` is the one in the client's
    certificate, such as bank.client.churn.
    """
    if token is None:
        credentials = _credentials(address, ca, cert, key)
        return access_to(credentials, _client_of(credentials))
    if not (ca and name) or cert or key:
        raise errors.ConfigError(
            "a token goes with ca and name, and with no certificate",
            hint="name is that of the client, such as bank.client.churn",
        )
    return Access(grpc.ssl_channel_credentials(read_authority(Path(ca))), name, token)


def access_to(credentials: Credentials, to: Identity) -> Access:
    """Return how to reach a daemon that has to prove to be `to`."""
    return Access(credentials.for_channel(to), to.dns) if credentials.secure else Access()


def open_channel(address: str, access: Access) -> grpc.Channel:
    """Return a channel that threads may share; it connects at the first call."""
    target = str(_dialled(address))
    if access.credentials is None:
        return grpc.insecure_channel(target, options=_OPTIONS)
    named = [("grpc.ssl_target_name_override", access.name)]
    channel = grpc.secure_channel(target, access.credentials, options=[*_OPTIONS, *named])
    return (
        channel if access.token is None else grpc.intercept_channel(channel, _Token(access.token))
    )


class _Token(grpc.UnaryUnaryClientInterceptor):
    """Sends a token with every call.

    gRPC's call credentials are not used: they run Python in gRPC's threads, and closing a channel
    at that moment never returns.
    """

    def __init__(self, token: str) -> None:
        self._shown = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make a call with the token in its metadata."""
        metadata = [*(client_call_details.metadata or ()), self._shown]
        return continuation(client_call_details._replace(metadata=metadata), request)


def call(ask: Callable[..., Any], request: Any, address: str, timeout_s: float) -> Any:
    """Return the answer of a daemon; raises an error that a person understands."""
    try:
        return ask(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise _explained(cast(FailedCall, error), address, timeout_s) from None


def call_patiently(ask: Callable[..., Any], request: Any, address: str, timeout_s: float) -> Any:
    """The same, but one that is made too often is made again when the daemon says, in that time."""
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            return call(ask, request, address, max(give_up_at - time.monotonic(), MIN_TIMEOUT_S))
        except errors.LimitExceeded as error:
            if time.monotonic() + error.retry_after_s >= give_up_at:
                raise
            time.sleep(error.retry_after_s)


def _credentials(address: str, ca: File, cert: File, key: File) -> Credentials:
    dialled = _dialled(address)
    if ca and cert and key:
        try:
            return load_credentials(CredentialFiles(Path(cert), Path(key), Path(ca)))
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


def _client_of(credentials: Credentials) -> Identity:
    """Return the client that a certificate may ask: an application its own, a client itself."""
    material = credentials.material
    if material is None:
        return client_of("", "")
    me = material.me
    if me.role not in ("client", "application"):
        raise errors.IdentityError(
            f"{me} may not ask a client",
            hint="use the client's own certificate, or one of an application that belongs to it",
        )
    return client_of(me.federation, me.organisation or me.name)


def _dialled(text: str) -> Address:
    address = Address.parse(text)
    if address.is_wildcard or address.port == 0:
        raise errors.ConfigError(
            f"nobody can be reached at {address}", hint="give the address of the ready line"
        )
    return address


def _explained(error: FailedCall, address: str, timeout_s: float) -> errors.LaserError:
    details = error.details() or ""
    if has_wrong_name(details):
        return errors.IdentityError(
            f"somebody else than expected answers at {address}",
            hint="check the address, and the certificate that you show",
        )
    if is_ours(error) or is_tls_failure(details):
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
        if exceeds_limit(details):
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
