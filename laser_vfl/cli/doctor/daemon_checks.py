"""What `doctor` checks by asking daemons: our own, the coordinator and the peers."""

import errno
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException

from laser_vfl.cli.doctor.finding import Finding, failed, ok, warn
from laser_vfl.cli.doctor.network_diagnosis import (
    TIMEOUT_S,
    diagnose,
    identity_shown,
    label,
    resolve,
)
from laser_vfl.config.address import Address
from laser_vfl.core.errors import (
    AddressError,
    ExitCode,
    LaserError,
    MismatchError,
    printable,
    quoted,
)
from laser_vfl.core.release import __version__
from laser_vfl.remote.calls import access_to
from laser_vfl.remote.greetings import Greeting, greet_coordinator, greet_peer
from laser_vfl.remote.operations import client_status
from laser_vfl.security.credentials import CredentialFiles, Credentials
from laser_vfl.security.identity import Identity, client_of
from laser_vfl.transport.protocol import PROTOCOL_VERSION

MAX_CLOCK_OFFSET_S = 30.0
MAX_PROBLEM = 500
MAX_PAGE_BYTES = 1_000_000


@dataclass(frozen=True)
class AskingAs:
    """The identity and the credentials of `doctor` itself; plaintext without files."""

    me: Identity
    credentials: Credentials
    files: CredentialFiles | None


def check_name(key: str, address: Address) -> Finding:
    """Check that the host of an address can be found."""
    try:
        resolve(address.host)
    except AddressError as error:
        return failed("dns", AddressError(error.message, hint=error.hint, where=key))
    return ok("dns", f"{key}: {address.host} can be found")


def check_port(key: str, address: Address, caller: AskingAs) -> Finding:
    """Check that a port can be bound, or is bound by our own daemon."""
    if address.port == 0:
        return ok(key, f"{address}: any port that is free")
    try:
        _bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = error.strerror or type(error).__name__
            return _unusable(key, f"cannot listen on {address} ({reason})")
    else:
        return ok(key, f"{address}: free; the daemon is not up")
    if is_own_daemon(key, address, caller):
        return ok(key, f"{address}: the daemon is up")
    return _unusable(key, f"{address} is in use by somebody else")


def dialled(address: Address) -> Address:
    """Return the address to dial for a daemon of this machine that listens at `address`."""
    return Address("127.0.0.1", address.port) if address.is_wildcard else address


def is_own_daemon(key: str, listen: Address, caller: AskingAs) -> bool:
    """Tell whether our own daemon answers where it should."""
    me, address = caller.me, dialled(listen)
    if address.port == 0:
        return False
    if key == "metrics_listen":
        return _is_own_page(address, me)
    if caller.files is not None:
        return identity_shown(address) == me
    access = access_to(caller.credentials, me)
    try:
        if key == "predict_listen":
            status = client_status(str(address), access)
            return (status["federation"], status["client"]) == (me.federation, me.name)
        greet = greet_coordinator if me.role == "coordinator" else greet_peer
        greeting = greet(str(address), access, me)
    except LaserError:
        return False
    return (greeting.federation, greeting.client) == (me.federation, me.name)


def _is_own_page(address: Address, me: Identity) -> bool:
    """Tell whether the metrics at an address are those of our daemon."""
    connection = HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(MAX_PAGE_BYTES).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    name = me.name if me.role == "client" else me.role
    labels = (f'role="{me.role}"', f'name="{name}"', f'federation="{me.federation}"')
    lines = [line for line in text.splitlines() if line.startswith("laser_vfl_build_info{")]
    return any(all(word in line for word in labels) for line in lines)


def check_daemon(
    address: Address, to: Identity, caller: AskingAs
) -> Generator[Finding, None, Greeting | None]:
    """Connect to a daemon and ask who it is; returns its greeting if nothing failed."""
    finding = diagnose(address, to, caller.files)
    if finding.status != "ok":
        yield finding
        return None
    greet = greet_coordinator if to.role == "coordinator" else greet_peer
    try:
        greeting = greet(str(address), access_to(caller.credentials, to), caller.me)
        _check_greeting(greeting, to, address)
    except LaserError as error:
        yield failed(label(to), error)
        return None
    yield _compared(finding, greeting)
    clock = _check_clock(greeting.clock_offset_s, to)
    if to.role == "coordinator" or clock.status != "ok":
        yield clock
    return greeting


def check_coordinator(
    address: Address, caller: AskingAs
) -> Generator[Finding, None, Greeting | None]:
    """Ask the coordinator whether this client could register; returns its greeting."""
    to = Identity(caller.me.federation, "coordinator")
    greeting = yield from check_daemon(address, to, caller)
    if greeting is None:
        return None
    if greeting.problem:
        message, _, hint = printable(greeting.problem[:MAX_PROBLEM]).partition("; ")
        yield failed("roster", MismatchError(f"the coordinator says: {message}", hint=hint))
        return None
    yield ok("roster", f"the coordinator knows {caller.me.name}")
    return greeting


def check_peers(
    addresses: Mapping[str, str],
    caller: AskingAs,
    is_dialled: Callable[[str, str], bool],
    *,
    remembered: bool,
) -> Iterator[Finding]:
    """Check every peer; a `remembered` one that cannot be reached is only a warning."""
    for name, text in addresses.items():
        if name == caller.me.name:
            continue
        to = client_of(caller.me.federation, name)
        try:
            address = Address.parse(text)
        except LaserError:
            error = MismatchError(f"advertises {quoted(text)}", hint="correct `advertise` there")
            yield failed(label(to), error)
            continue
        if not is_dialled(name, text):
            error = MismatchError(
                f"advertises {quoted(text)}, which this client does not dial",
                hint="correct `advertise` there, or set `dial_local` here",
            )
            yield failed(label(to), error)
            continue
        for finding in check_daemon(address, to, caller):
            is_away = remembered and finding.exit_code == ExitCode.ADDRESS
            yield (replace(finding, status="warn", exit_code=ExitCode.OK) if is_away else finding)


def _check_greeting(greeting: Greeting, to: Identity, address: Address) -> None:
    """Check that the daemon is the expected one and speaks the same protocol version."""
    if (greeting.federation, greeting.client) != (to.federation, to.name):
        found = greeting.client or "the coordinator"
        raise MismatchError(
            f"{address} is {quoted(found)} of federation {quoted(greeting.federation)}, not {to}",
            hint="correct the address, or `federation`",
        )
    if greeting.protocol_version != PROTOCOL_VERSION:
        raise MismatchError(
            f"{label(to)} (release {quoted(greeting.release)}) speaks protocol version "
            f"{greeting.protocol_version}, and we {PROTOCOL_VERSION}",
            hint="run the same release on both sides",
        )


def _compared(finding: Finding, greeting: Greeting) -> Finding:
    if greeting.release == __version__:
        return finding
    message = f"{finding.message}, with release {quoted(greeting.release)}"
    return warn(finding.check, message, f"run the same release; here it is {__version__}")


def _check_clock(offset_s: float, to: Identity) -> Finding:
    side = "ahead of" if offset_s > 0 else "behind"
    whose = "the coordinator's clock" if to.role == "coordinator" else f"{to.name}'s clock"
    message = f"{whose} is {abs(offset_s):.1f} s {side} ours"
    if abs(offset_s) <= MAX_CLOCK_OFFSET_S:
        return ok("clock", message)
    return warn("clock", message, "set both by NTP: certificates are judged by the clock")


def _bind(address: Address) -> None:
    """Bind an address and release it again, as a daemon would bind it."""
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(place)
        taken.listen(1)


def _unusable(key: str, message: str) -> Finding:
    hint = f"stop what uses it, or choose another `{key}`"
    return failed(key, AddressError(message, hint=hint))
