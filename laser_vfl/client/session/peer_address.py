"""Addresses of other clients, as the coordinator tells them: host:port, no other target of gRPC.

A member states its own address. It must not make others dial what only their own machine can reach,
so a client dials loopback and link-local addresses only if its own address is one, or if
`dial_local` allows it.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Iterable
from threading import Thread

from laser_vfl.config.address import Address
from laser_vfl.core.errors import ConfigError, ContractError, quoted
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

NOWHERE = "0.0.0.0:0"
"""Stands for an address that is not dialled: nobody can listen on port 0."""

MOMENT_S = 0.25
"""How long a directive may wait for names that are being resolved."""

KEPT_S = 60.0
"""How long the scope of a name is cached."""

UNKNOWN_KEPT_S = 10.0
"""How long it is cached that a name could not be resolved."""

LOOKUPS_EACH = 2
"""So many names of one client are resolved at the same time."""

UNKNOWN = "unknown"

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def checked_address(text: str, client: str) -> str:
    """Return the address of a client, or refuse one that could lead elsewhere than to a host."""
    try:
        Address.parse(text)
    except ConfigError:
        raise ContractError(
            f"the coordinator says that {quoted(client)} is at {quoted(text)}, no host:port"
        ) from None
    return text


class DialRule:
    """Which addresses of others this client dials.

    Names are resolved in threads of their own. A name that is not resolved yet, or cannot be, is
    not dialled meanwhile, and nothing waits for it: whoever gave it may have it hang.
    """

    def __init__(self, own: Address, *, dial_local: bool, listen: Address | None = None) -> None:
        self._own_host = own.host.lower()
        listens_at = (listen or own).host.lower()
        self._allowed = {_scope_of_host(self._own_host)} - {"", "nowhere"}
        if dial_local:
            self._allowed |= {"loopback", "link-local"}
        is_own_name = listens_at == self._own_host
        self._own_may_be_local = is_own_name or _scope_of_host(listens_at) == "loopback"
        self._known: dict[str, tuple[float, str]] = {}
        """The scopes of names, each with the time until which it holds; the oldest come first."""
        self._lookups: dict[str, str] = {}
        """The names that are being resolved, each with the client for which that is done."""
        self._told: set[tuple[str, str]] = set()
        self.news = asyncio.Event()
        """Set when a name was resolved, or could not be."""

    def allows(self, client: str, text: str) -> bool:
        """Tell whether an address is dialled, as far as that can be told without resolving it."""
        try:
            host = Address.parse(text).host.lower()
        except ConfigError:
            return True  # which is refused elsewhere
        return self._is_allowed(client, text, _scope_of_host(host))

    def screen(self, directive: pb.Directive, me: str) -> pb.Directive:
        """Return a directive without the addresses that this client must not dial now."""
        screened = pb.Directive()
        screened.CopyFrom(directive)
        members: Iterable[pb.ViewMember | pb.AlignmentMember] = (
            *screened.training.view.members,
            *screened.training.joiners,
            *screened.gathering.call.members,
        )
        for member in members:
            if member.client != me and not self._allows_resolved(member.client, member.address):
                member.address = NOWHERE
        told = list(screened.addresses)
        kept = [
            entry
            for entry in told
            if entry.client == me or self._allows_resolved(entry.client, entry.address)
        ]
        if len(kept) < len(told):
            del screened.addresses[:]
            screened.addresses.extend(kept)
        return screened

    async def screen_soon(self, directive: pb.Directive, me: str) -> pb.Directive:
        """Return the same, but give names that are being resolved a moment."""
        try:
            async with asyncio.timeout(MOMENT_S):
                while True:
                    self.news.clear()
                    screened = self.screen(directive, me)
                    if not self._lookups:
                        return screened
                    await self.news.wait()
        except TimeoutError:
            return self.screen(directive, me)

    def _allows_resolved(self, client: str, text: str) -> bool:
        if not self.allows(client, text):
            return False
        try:
            host = Address.parse(text).host.lower()
        except ConfigError:
            return True
        if _ip_of(host) is not None or _scope_of_host(host):
            return True
        scope = self._scope_of_name(client, host)
        if scope is None:
            return False
        if scope == "loopback" and host == self._own_host and self._own_may_be_local:
            return True
        return self._is_allowed(client, text, scope)

    def _is_allowed(self, client: str, text: str, scope: str) -> bool:
        if not scope or scope in self._allowed:
            return True
        if (client, text) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((client, text))
            if scope == UNKNOWN:
                log.warning("%s says that it is at %s, no known name", client, quoted(text))
                return False
            what = "no address of a host" if scope == "nowhere" else f"a {scope} address"
            log.warning(
                "%s says that it is at %s, which is %s; it is not dialled there (dial_local allows "
                "it where all clients are on one machine)",
                client,
                quoted(text),
                what,
            )
        return False

    def _scope_of_name(self, client: str, host: str) -> str | None:
        """Return the scope of a name's addresses, None if it is not known yet.

        What was known goes on to hold while it is looked up anew.
        """
        until, scope = self._known.get(host, (0.0, None))
        if time.monotonic() >= until and host not in self._lookups:
            under_way = list(self._lookups.values()).count(client)
            if under_way < LOOKUPS_EACH:
                self._lookups[host] = client
                loop = asyncio.get_running_loop()
                Thread(target=self._look_up, args=(host, loop), daemon=True).start()
        return scope

    def _look_up(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        """Resolve a name, in a thread; the system may take its time."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            scopes = {_scope(ipaddress.ip_address(str(place[0]))) for *_, place in found}
            narrow = (s for s in ("nowhere", "loopback", "link-local") if s in scopes)
            scope = next(narrow, "")
        except (OSError, UnicodeError, ValueError):
            scope = UNKNOWN
        with contextlib.suppress(RuntimeError):  # the daemon has ended
            loop.call_soon_threadsafe(self._learn, host, scope)

    def _learn(self, host: str, scope: str) -> None:
        self._lookups.pop(host, None)
        self._known.pop(host, None)
        while len(self._known) >= MAX_TOLD:
            del self._known[next(iter(self._known))]
        kept_s = UNKNOWN_KEPT_S if scope == UNKNOWN else KEPT_S
        self._known[host] = (time.monotonic() + kept_s, scope)
        self.news.set()


MAX_TOLD = 200
"""At most so many names and warnings are kept: a member may change its address without end."""

IsDialled = Callable[[str, str], bool]
"""Is called with a client and its address."""


def _scope_of_host(host: str) -> str:
    """Return the scope of a host as far as it is known without DNS; empty for most names."""
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return "loopback"
    ip = _ip_of(host)
    return _scope(ip) if ip is not None else ""


def _ip_of(host: str) -> _Ip | None:
    """Return the IP address that a host is, in any of the forms that a resolver takes for one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:  # "0x7f.1" looks like a name
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _scope(ip: _Ip) -> str:
    """Return the scope of an address; empty if others can reach it as well."""
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    is_broadcast = isinstance(ip, ipaddress.IPv4Address) and ip.packed[0] in (0, 255)
    return "nowhere" if ip.is_unspecified or ip.is_multicast or is_broadcast else ""
