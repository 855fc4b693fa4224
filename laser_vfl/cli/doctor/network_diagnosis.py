"""Where a connection to a daemon fails: name, TCP, TLS, its identity, or our certificate."""

import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from laser_vfl.cli.doctor.finding import Finding, failed, ok
from laser_vfl.cli.doctor.tls_probe import (
    authority_file,
    tls_context,
    untrusted,
    unverifying_context,
)
from laser_vfl.config.address import Address
from laser_vfl.core.errors import AddressError, IdentityError, LaserError, printable
from laser_vfl.security.certificates import extensions_of, named_by
from laser_vfl.security.credentials import CredentialFiles
from laser_vfl.security.identity import Identity

TIMEOUT_S = 3.0

FRAME_HEADER_BYTES = 9
SETTINGS = 4
"""The kind of HTTP/2 frame that a gRPC server sends first."""

TLS_RECORDS = (b"\x15\x03", b"\x16\x03")

MAX_NAMES = 5

_REFUSALS = {
    "CERTIFICATE_REQUIRED": "they demand a certificate, and did not get ours",
    "UNKNOWN_CA": "ours is not from an authority that they trust",
    "CERTIFICATE_EXPIRED": "ours has expired by their clock",
    "CERTIFICATE_UNKNOWN": "they do not accept ours",
    "BAD_CERTIFICATE": "they do not accept ours",
    "UNSUPPORTED_CERTIFICATE": "they do not accept the kind of ours",
    "CERTIFICATE_REVOKED": "ours has been revoked",
}


def label(party: Identity) -> str:
    """Return the name of the check of a daemon."""
    return f"peer {party.name}" if party.role == "client" else party.role


def diagnose(address: Address, to: Identity, files: CredentialFiles | None) -> Finding:
    """Connect to a daemon step by step and say which step fails; without files, in plaintext."""
    try:
        if files is None:
            _try_plaintext(address)
            return ok(label(to), f"{address} answers in plaintext")
        _try_tls(address, to, files)
        return ok(label(to), f"{address} is {to} and accepts our certificate")
    except LaserError as error:
        return failed(label(to), error)


def resolve(host: str) -> None:
    """Find a host by its name; raises if there is none."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a name"
        raise AddressError(
            f"no host is known by the name {host} ({reason})",
            hint="correct the name, or make it known to DNS",
        ) from None


def identity_shown(address: Address) -> Identity | None:
    """Return the identity in the certificate that a server shows, without verifying it.

    None if it names nobody of a federation, or TLS is not spoken there.
    """
    try:
        with _connect(address) as plain, unverifying_context().wrap_socket(plain) as tls:
            return _named(tls)[0]
    except (OSError, LaserError):
        return None


def _connect(address: Address) -> socket.socket:
    resolve(address.host)
    try:
        return socket.create_connection((address.host, address.port), TIMEOUT_S)
    except ConnectionRefusedError:
        raise AddressError(
            f"{address} refuses connections", hint="is the daemon up, and is that its port?"
        ) from None
    except TimeoutError:
        raise AddressError(
            f"{address} does not answer within {TIMEOUT_S:g} s",
            hint="is the host up, and does a firewall let this port through?",
        ) from None
    except OSError as error:
        raise AddressError(
            f"{address} cannot be reached ({error.strerror})", hint="check network and address"
        ) from None


def _try_tls(address: Address, to: Identity, files: CredentialFiles) -> None:
    authority = authority_file(files, to)
    try:
        context = tls_context(files, authority, for_server=False)
    except (OSError, ValueError):
        raise IdentityError("our own certificate cannot be used", hint="see above") from None
    with _connect(address) as plain:
        try:
            tls = context.wrap_socket(plain)
        except ssl.SSLCertVerificationError as error:
            raise _untrusted_certificate(error, address, to, authority) from None
        except OSError as error:
            raise _no_handshake(error, address) from None
        with tls:
            _check_names(tls, address, to)
            if tls.selected_alpn_protocol() != "h2":
                raise _something_else(address)
            try:
                answer = _first_bytes(tls)
            except OSError as error:
                raise _not_accepted(error, address) from None
    if not answer:
        raise _not_accepted(None, address)
    if not _is_settings(answer):
        raise _something_else(address)


def _try_plaintext(address: Address) -> None:
    with _connect(address) as plain:
        try:
            answer = _first_bytes(plain)
        except OSError:
            answer = b""
    if _is_settings(answer):
        return
    if answer.startswith(TLS_RECORDS) or _speaks_tls(address):
        raise IdentityError(
            f"{address} speaks TLS, and we do not", hint="add a tls section to the configuration"
        )
    raise _something_else(address)


def _first_bytes(stream: socket.socket) -> bytes:
    """Return the first bytes that a server sends.

    With TLS 1.3 a server verifies our certificate after our side of the handshake has ended, so a
    refusal shows here. Nothing is sent before: the reply to that would hide the reason.
    """
    answer = b""
    while len(answer) < FRAME_HEADER_BYTES:
        part = stream.recv(FRAME_HEADER_BYTES - len(answer))
        if not part:
            break
        answer += part
    return answer


def _is_settings(answer: bytes) -> bool:
    return len(answer) == FRAME_HEADER_BYTES and answer[3] == SETTINGS


def _check_names(tls: ssl.SSLSocket, address: Address, to: Identity) -> None:
    identity, dns_names = _named(tls)
    if to.dns not in dns_names:
        raise _wrong_name(address, to, identity, dns_names)


def _wrong_name(
    address: Address, to: Identity, identity: Identity | None, dns_names: Iterable[str]
) -> IdentityError:
    names = [printable(name) for name in dns_names][:MAX_NAMES]
    found = ", ".join([*(f"DNS {name}" for name in names), *([f"URI {identity}"] * bool(identity))])
    return IdentityError(
        f"expected {to.dns} at {address}, found {found or 'no name'}",
        hint="correct the address, or `federation`",
    )


def _named(tls: ssl.SSLSocket) -> tuple[Identity | None, tuple[str, ...]]:
    try:
        certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
        return named_by(extensions_of(certificate))
    except ValueError:
        return None, ()


def _untrusted_certificate(
    error: ssl.SSLCertVerificationError, address: Address, to: Identity, authority: Path
) -> IdentityError:
    found = identity_shown(address)
    whose = f"the certificate of {found}" if found else "their certificate"
    refusal = untrusted(error, f"{address}: {whose}", authority)
    if found is not None and found != to:
        refusal.hint = f"expected {to}: is this its address? {refusal.hint}"
    return refusal


def _no_handshake(error: OSError, address: Address) -> LaserError:
    reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
    if "PROTOCOL" in reason and "APPLICATION" not in reason:
        return IdentityError(
            f"{address} does not speak TLS 1.3 ({reason})",
            hint="is it a daemon of ours, with nothing in between?",
        )
    if _speaks_plaintext(address):
        return IdentityError(
            f"{address} speaks plaintext, and we speak TLS",
            hint="give that daemon a tls section, and start it without --insecure",
        )
    if isinstance(error, TimeoutError):
        return AddressError(
            f"{address} accepts connections and then says nothing",
            hint="is that daemon stopped, or does something in between hold it up?",
        )
    return IdentityError(
        f"TLS with {address} fails ({reason})", hint="is it a daemon of ours, with tls?"
    )


def _not_accepted(error: OSError | None, address: Address) -> LaserError:
    if isinstance(error, TimeoutError):
        return AddressError(f"{address} speaks TLS and then says nothing", hint="try again")
    reason = getattr(error, "reason", None) or ""
    why = next((words for name, words in _REFUSALS.items() if name in reason), "")
    why = why or f"they hang up when they see ours{f' ({reason})' if reason else ''}"
    return IdentityError(
        f"{address} does not accept our certificate: {why}",
        hint="check tls there: does it trust our authority, and is its clock right?",
    )


def _something_else(address: Address) -> AddressError:
    return AddressError(
        f"something answers at {address}, and it is no daemon", hint="correct the address"
    )


def _speaks_plaintext(address: Address) -> bool:
    try:
        with _connect(address) as plain:
            return _is_settings(_first_bytes(plain))
    except (OSError, LaserError):
        return False


def _speaks_tls(address: Address) -> bool:
    try:
        with _connect(address) as plain, unverifying_context().wrap_socket(plain):
            return True
    except (OSError, LaserError):
        return False
