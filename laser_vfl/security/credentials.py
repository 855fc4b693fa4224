"""Credentials of a connection: mutual TLS, or plaintext on loopback if that is asked for.

The files are read again when they change: servers show the new certificate at the next handshake,
and whoever has a channel opens it anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from laser_vfl.atomic_files import stamp
from laser_vfl.core.errors import IdentityError
from laser_vfl.private_files import require_private
from laser_vfl.security.certificates import extensions_of, named_by, public_bytes
from laser_vfl.security.identity import Identity

log = logging.getLogger(__name__)

CHECK_TLS = "check tls in the configuration"

EVERYBODY = ""
"""The holders of certificates from a federation's one authority: every party."""

WATCH_INTERVAL_S = 1.0


@dataclass(frozen=True)
class CredentialFiles:
    """PEM files: whom to trust, who we are, and the proof of it.

    Either one authority for the whole federation, or one for each organisation by its name.
    """

    cert: Path
    key: Path
    ca: Path | None = None
    authorities: Mapping[str, Path] | None = None

    @property
    def trusted(self) -> dict[str, Path]:
        """The file of each authority, by whom it vouches for."""
        return dict(self.authorities or {}) or {EVERYBODY: self.ca or Path()}

    def stamps(self) -> tuple[object, ...]:
        """Return what changes when a file is replaced."""
        return tuple(stamp(path) for path in (self.cert, self.key, *self.trusted.values()))


@dataclass(frozen=True)
class Material:
    """What the files hold at one moment."""

    cert: bytes
    key: bytes
    authorities: Mapping[str, bytes]
    me: Identity
    ends_at: datetime
    serial: int

    @property
    def roots(self) -> bytes:
        """All authorities together."""
        return b"\n".join(self.authorities.values())

    def authority_of(self, identity: Identity) -> bytes:
        """Return who may vouch for somebody; nothing if nobody may."""
        if EVERYBODY in self.authorities:
            return self.authorities[EVERYBODY]
        return self.authorities.get(identity.voucher, b"")

    @property
    def is_one_for_all(self) -> bool:
        """Whether the whole federation has one authority."""
        return EVERYBODY in self.authorities


class Credentials:
    """The identity of this process in a federation; without material, plaintext."""

    def __init__(
        self,
        federation: str = "",
        material: Material | None = None,
        files: CredentialFiles | None = None,
    ) -> None:
        self.federation = federation
        self.material = material
        self.changed = asyncio.Event()
        """Set when the certificate has changed; there is another one for the next change."""
        self._files = files
        self._stamps = files.stamps() if files else ()

    @property
    def secure(self) -> bool:
        """Whether connections are encrypted and authenticated."""
        return self.material is not None

    def for_server(self, *, demand_certificate: bool = True) -> grpc.ServerCredentials:
        """Return what a server presents, always the latest; it demands the caller's too."""
        shown: Material | None = None

        def fetch() -> Any:
            nonlocal shown
            material = self.material
            assert material is not None
            if material is shown:
                return None
            shown = material
            return grpc.ssl_server_certificate_configuration(
                [(material.key, material.cert)], root_certificates=material.roots
            )

        return grpc.dynamic_ssl_server_credentials(
            fetch(), fetch, require_client_authentication=demand_certificate
        )

    def for_channel(self, to: Identity) -> grpc.ChannelCredentials:
        """Return what to present to somebody; only its own authority may vouch for it."""
        material = self.material
        assert material is not None
        authority = material.authority_of(to)
        if not authority:
            raise IdentityError(
                f"there is no authority for {to.voucher} in tls.authorities",
                hint=f"add the certificate of {to.voucher}'s authority",
            )
        return grpc.ssl_channel_credentials(authority, material.key, material.cert)

    def read_changes(self) -> Material | None:
        """Read the files if they have changed; return what they hold if it can be used."""
        if self._files is None or self.material is None:
            return None
        stamps = self._files.stamps()
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        try:
            found = _read_material(self._files)
            _check_name(found, self.material.me, self._files)
        except IdentityError as error:
            log.warning("the certificate stays as it was: %s", error)
            return None
        return None if found == self.material else found

    def change(self, material: Material) -> None:
        """Be known by this from now on."""
        self.material = material
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    async def watch(self, noted: Callable[[Material], None]) -> None:
        """Follow the files for as long as the daemon lives."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            try:
                material = await asyncio.to_thread(self.read_changes)
            except Exception:
                log.exception("this is a bug; the certificate stays as it was")
                continue
            if material is not None:
                self.change(material)
                log.info("the certificate has changed; it is good until %s", material.ends_at)
                noted(material)


def load_credentials(files: CredentialFiles, me: Identity | None = None) -> Credentials:
    """Read and check the files of a daemon, or of whoever asks one; `me` is whom they must name."""
    material = _read_material(files)
    if me is not None:
        _check_name(material, me, files)
    return Credentials(material.me.federation, material, files)


class Dialable(Protocol):
    """An address, as the configuration has it."""

    @property
    def is_loopback(self) -> bool:
        """Whether it can only be reached from this machine."""


def plaintext(
    federation: str, addresses: Mapping[str, Dialable | None], *, allowed: bool
) -> Credentials:
    """Return empty credentials if plaintext was asked for and all addresses are on loopback."""
    if not allowed:
        raise IdentityError(
            "no tls section in the configuration",
            hint="make certificates with `laser-vfl certs` and add tls: {ca: …, cert: …, key: …}, "
            "or pass --insecure to try it out on loopback (in Python: insecure=True)",
        )
    for name, address in addresses.items():
        if address is not None and not address.is_loopback:
            raise IdentityError(
                f"--insecure works only on loopback, and {name} is {address}",
                hint="add a tls section, or use 127.0.0.1",
            )
    return Credentials(federation)


def _check_name(material: Material, me: Identity, files: CredentialFiles) -> None:
    if material.me != me:
        raise IdentityError(
            f"the certificate names {material.me}, not {me}",
            where=str(files.cert),
            hint="use the certificate that was issued for this name",
        )


def _read_material(files: CredentialFiles) -> Material:
    authorities = {name: read_authority(path) for name, path in files.trusted.items()}
    cert = _read(files.cert, "CERTIFICATE")
    key = _read(files.key, "PRIVATE KEY")
    try:
        certificate = x509.load_pem_x509_certificate(cert)
        private = serialization.load_pem_private_key(key, password=None)
        is_pair = public_bytes(private.public_key()) == public_bytes(certificate.public_key())
        me, _ = named_by(extensions_of(certificate))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        is_pair = False
    if not is_pair:
        raise IdentityError(
            "the certificate and the key do not belong together, or the key is encrypted",
            where=f"{files.cert}, {files.key}",
            hint="issue a new pair, with a key that has no pass phrase",
        )
    require_private(files.key, IdentityError)
    if me is None:
        raise IdentityError(
            "names nobody of a federation",
            where=str(files.cert),
            hint="issue it with `laser-vfl certs issue`: it needs one URI such as "
            "spiffe://FEDERATION/client/NAME",
        )
    return Material(
        cert, key, authorities, me, certificate.not_valid_after_utc, certificate.serial_number
    )


def read_authority(path: Path) -> bytes:
    """Return the certificates of a file of authorities, checked."""
    content = _read(path, "CERTIFICATE")
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError:
        raise IdentityError(
            "holds no certificate that can be read", where=str(path), hint=CHECK_TLS
        ) from None
    return content


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
