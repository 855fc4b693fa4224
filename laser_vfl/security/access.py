"""Authorisation: one table of which callers may make which calls, and the one check of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import grpc.aio
from cryptography import x509

from laser_vfl.core.errors import IdentityError, LimitExceeded, quoted
from laser_vfl.core.token_bucket import Bucket
from laser_vfl.security.certificates import verify_issued_by
from laser_vfl.security.credentials import Credentials, Material
from laser_vfl.security.identity import Identity, parse_identity

Party = Literal["owner", "coordinator", "client", "operator", "application"]
"""The owner has the daemon's own certificate."""

TLS_VERSION = b"TLSv1.3"

MAX_REMEMBERED = 1000
"""How many certificates are known by sight; a federation has far fewer."""


MAX_PREDICTIONS = 100
"""How many requests for predictions an application may have under way, most of them waiting."""


@dataclass(frozen=True)
class Rate:
    """How often a caller may make a call, once it has made a burst of them."""

    per_s: float
    burst: float


@dataclass(frozen=True)
class Rule:
    """The callers that may make a call, how many at the same time, and how often."""

    parties: frozenset[Party]
    max_calls: int
    rate: Rate | None = None


def _rule(*parties: Party, max_calls: int = 16, rate: Rate | None = None) -> Rule:
    return Rule(frozenset(parties), max_calls, rate)


_COMES_BACK = Rate(per_s=4.0, burst=40.0)
"""For what a client does that has lost the coordinator, which it tries for twice a second."""

_ASKS = Rate(per_s=20.0, burst=200.0)
"""For what a member does a few times in an alignment, or somebody who looks how things stand."""

_DIALS = Rate(per_s=2.0, burst=100.0)
"""For a stream of frames. What is under way is sent again on each, so they may not come and go."""

ACCESS: dict[str, Rule] = {
    "/laser_vfl.v1.Coordinator/Register": _rule("client", rate=_COMES_BACK),
    "/laser_vfl.v1.Coordinator/Commit": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/SubmitIds": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/FetchAlignment": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/RefuseAlignment": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/DryRun": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/Session": _rule("client", max_calls=4, rate=_COMES_BACK),
    "/laser_vfl.v1.Coordinator/Retrain": _rule("owner", "operator"),
    "/laser_vfl.v1.Coordinator/ApproveRun": _rule("owner", "operator"),
    "/laser_vfl.v1.Coordinator/RejectRun": _rule("owner", "operator"),
    "/laser_vfl.v1.Coordinator/CancelRun": _rule("owner", "operator"),
    "/laser_vfl.v1.Coordinator/GetStatus": _rule("owner", "operator", "client", rate=_ASKS),
    "/laser_vfl.v1.Coordinator/Greet": _rule("owner", "client", rate=_ASKS),
    "/laser_vfl.v1.Peer/Exchange": _rule("client", max_calls=8, rate=_DIALS),
    "/laser_vfl.v1.Peer/Represent": _rule("client", max_calls=8),
    "/laser_vfl.v1.Peer/HandOn": _rule("client", rate=_ASKS),
    "/laser_vfl.v1.Peer/Greet": _rule("owner", "client", rate=_ASKS),
    "/laser_vfl.v1.Prediction/Predict": _rule("owner", "application", max_calls=MAX_PREDICTIONS),
    "/laser_vfl.v1.Prediction/GetClientStatus": _rule("owner", "application"),
    "/laser_vfl.v1.Prediction/Align": _rule("owner"),
    "/laser_vfl.v1.Prediction/Publish": _rule("owner"),
    "/grpc.health.v1.Health/Check": _rule(
        "owner", "coordinator", "client", "operator", "application"
    ),
}
"""Nobody may watch the health: who watches and does not read would keep the server from changing
it, and so from stopping."""

_caller: ContextVar[Identity | None] = ContextVar("caller", default=None)


@dataclass(frozen=True)
class Caller:
    """The caller, and whether a certificate proves it."""

    name: str
    is_certified: bool


def identify(claimed: str) -> Caller:
    """Return which client calls: whom the certificate names, or, without TLS, who it says it is."""
    identity = _caller.get()
    if identity is None:
        return Caller(claimed, is_certified=False)
    if identity.role != "client" or identity.name != claimed:
        raise IdentityError(
            f"the certificate names {identity}, not client {quoted(claimed)}",
            hint="a client speaks for itself alone",
        )
    return Caller(identity.name, is_certified=True)


def check_on_roster(roster: Sequence[str]) -> None:
    """Refuse a client that has a certificate of the federation and is no part of it."""
    identity = _caller.get()
    if identity is not None and identity.role == "client" and identity.name not in roster:
        raise IdentityError(f"{identity} is not on the roster")


def caller_text() -> str:
    """Return who makes the call that is being answered, for a log."""
    identity = _caller.get()
    return identity.uri if identity else "plaintext"


@contextmanager
def calling_as(identity: Identity | None) -> Iterator[None]:
    """Have somebody be the caller while this lasts."""
    before = _caller.set(identity)
    try:
        yield
    finally:
        _caller.reset(before)


@dataclass(frozen=True)
class AdmittedCall:
    """The caller, or None without certificates, and how long a call may take."""

    caller: Identity | None = None
    lasts_s: float | None = None
    """Until the certificate ends."""


ANYBODY = AdmittedCall()
"""Whoever calls where there are no certificates."""


class Authorizer:
    """Lets calls in or refuses them, at one server."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        applications: Sequence[str] | None = None,
        tokens: Callable[[str], str] | None = None,
    ) -> None:
        """`applications` names those that may ask, without it all of this organisation's may.

        With `tokens`, a token takes the place of the caller's certificate; it returns the
        application that a token is for, and raises if it is for none.
        """
        self._credentials = credentials
        self._applications = applications
        self.tokens = tokens
        self._num_calls: Counter[tuple[Identity, str]] = Counter()
        self._buckets: dict[tuple[Identity, str], Bucket] = {}
        self._seen: dict[bytes, tuple[Identity, datetime]] = {}
        self._seen_under = credentials.material

    @contextmanager
    def admit(
        self, method: str, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> Iterator[AdmittedCall]:
        """Let a call in for as long as this lasts; raises what is against it."""
        admission = self._admission(context) if self._credentials.secure else ANYBODY
        caller = admission.caller
        self._check(method, caller)
        if caller is not None:
            self._count(caller, method)
        try:
            with calling_as(caller):
                yield admission
        finally:
            if caller is not None:
                self._discount(caller, method)

    def _check(self, method: str, caller: Identity | None) -> None:
        rule = ACCESS.get(method)
        if rule is None:
            raise IdentityError("nobody may call this")
        if caller is None:
            return
        party = self._party(caller)
        if party not in rule.parties:
            raise IdentityError(f"{caller} may not call {method.rpartition('/')[2]} here")

    def _party(self, caller: Identity) -> Party | None:
        material = self._credentials.material
        assert material is not None
        if caller == material.me:
            return "owner"
        if caller.role != "application":
            return caller.role
        is_ours = caller.organisation == material.me.name and material.me.role == "client"
        is_allowed = self._applications is None or caller.name in self._applications
        return "application" if is_ours and is_allowed else None

    def _count(self, caller: Identity, method: str) -> None:
        """Count a call that begins; refuse it if there are too many."""
        key = (caller, method)
        if self._num_calls[key] >= ACCESS[method].max_calls:
            raise LimitExceeded("too many of these calls at the same time")
        self._check_rate(key)
        self._num_calls[key] += 1

    def _discount(self, caller: Identity, method: str) -> None:
        key = (caller, method)
        self._num_calls[key] -= 1
        if not self._num_calls[key]:
            del self._num_calls[key]

    def _check_rate(self, key: tuple[Identity, str]) -> None:
        """Count a call; refuse it while the caller makes too many of its kind."""
        rate = ACCESS[key[1]].rate
        if rate is None:
            return
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.clear()
        bucket = self._buckets.setdefault(key, Bucket(rate.per_s, burst=rate.burst))
        if wait_s := bucket.wait_s(time.monotonic()):
            raise LimitExceeded(
                "too many of these calls in a short time",
                hint=f"call again in {wait_s:.2f} s",
                retry_after_s=wait_s,
            )
        bucket.take(1)

    def _admission(self, context: "grpc.aio.ServicerContext[Any, Any]") -> AdmittedCall:
        auth = context.auth_context()
        if auth.get("ssl_tls_version") != [TLS_VERSION]:
            raise IdentityError("only TLS 1.3 is spoken here")
        if self.tokens is not None:
            return AdmittedCall(self._by_token(dict(context.invocation_metadata() or ())))
        pem = next(iter(auth.get("x509_pem_cert", ())), b"")
        ids = [uri.decode("utf-8", "replace") for uri in auth.get("peer_spiffe_id", ())]
        return self._by_certificate(pem, ids)

    def _by_certificate(self, pem: bytes, uris: Sequence[str]) -> AdmittedCall:
        """Return whom a certificate names that a handshake has found good, and is good still."""
        material = self._credentials.material
        assert material is not None
        if material is not self._seen_under or len(self._seen) > MAX_REMEMBERED:
            self._seen, self._seen_under = {}, material
        if pem not in self._seen:
            self._seen[pem] = _examined(pem, uris, material)
        identity, ends_at = self._seen[pem]
        lasts_s = (ends_at - datetime.now(UTC)).total_seconds()
        if lasts_s <= 0:
            raise IdentityError(f"the certificate of {identity} has expired")
        return AdmittedCall(identity, lasts_s)

    def _by_token(self, metadata: dict[str, Any]) -> Identity:
        assert self.tokens is not None
        material = self._credentials.material
        assert material is not None
        name = self.tokens(str(metadata.get("authorization", "")).removeprefix("Bearer "))
        return Identity(material.me.federation, "application", name, material.me.name)


def _examined(pem: bytes, uris: Sequence[str], material: Material) -> tuple[Identity, datetime]:
    """Return whom a certificate names and how long it is good; raises what is wrong with it."""
    identity = parse_identity(uris[0]) if len(uris) == 1 else None
    if identity is None:
        raise IdentityError("the certificate names nobody of a federation")
    if identity.federation != material.me.federation:
        raise IdentityError(f"{identity} is of another federation")
    certificate = x509.load_pem_x509_certificate(pem)
    authority = material.authority_of(identity)
    if not material.is_one_for_all and not verify_issued_by(pem, authority, datetime.now(UTC)):
        raise IdentityError(f"the certificate's authority may not vouch for {identity}")
    return identity, certificate.not_valid_after_utc
