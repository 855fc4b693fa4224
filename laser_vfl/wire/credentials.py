"""Who we are on a connection: mutual TLS, or plaintext on loopback when asked for."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from laser_vfl.core.errors import IdentityError

CHECK_TLS = "check tls in the configuration"


@dataclass(frozen=True)
class Credentials:
    """Certificates for both ends of mutual TLS; all empty means plaintext."""

    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""

    @property
    def secure(self) -> bool:
        """Whether connections are encrypted and authenticated."""
        return bool(self.ca)

    def for_server(self) -> grpc.ServerCredentials:
        """Return what a server presents; it demands a certificate of the caller."""
        return grpc.ssl_server_credentials(
            [(self.key, self.cert)], root_certificates=self.ca, require_client_auth=True
        )

    def for_channel(self) -> grpc.ChannelCredentials:
        """Return what a caller presents."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)


def load_credentials(ca: Path, cert: Path, key: Path) -> Credentials:
    """Read and check the three files of a daemon."""
    credentials = Credentials(
        ca=_read(ca, "CERTIFICATE"), cert=_read(cert, "CERTIFICATE"), key=_read(key, "PRIVATE KEY")
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=credentials.ca.decode("ascii", "replace"))
    except ssl.SSLError:
        raise IdentityError(
            "holds no certificate that can be read", where=str(ca), hint=CHECK_TLS
        ) from None
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError):
        raise IdentityError(
            "the certificate and the key do not belong together, or the key is encrypted",
            where=f"{cert}, {key}",
            hint="issue a new pair, with a key that has no pass phrase",
        ) from None
    return credentials


class Dialable(Protocol):
    """An address, as the configuration has it."""

    @property
    def is_loopback(self) -> bool:
        """Whether it can only be reached from this machine."""


def plaintext(addresses: Mapping[str, Dialable | None], *, allowed: bool) -> Credentials:
    """Return empty credentials if plaintext was asked for and all addresses are on loopback."""
    if not allowed:
        raise IdentityError(
            "no tls section in the configuration",
            hint="add tls: {ca: …, cert: …, key: …}, or pass --insecure to try it out on loopback "
            "(in Python: insecure=True)",
        )
    for name, address in addresses.items():
        if address is not None and not address.is_loopback:
            raise IdentityError(
                f"--insecure works only on loopback, and {name} is {address}",
                hint="add a tls section, or use 127.0.0.1",
            )
    return Credentials()


def _read(path: Path, kind: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise IdentityError(
            f"cannot be read ({error.strerror})", where=str(path), hint=CHECK_TLS
        ) from None
    if b"-----BEGIN " not in content or kind.encode() not in content:
        raise IdentityError(f"holds no {kind.lower()} in PEM form", where=str(path), hint=CHECK_TLS)
    return content
