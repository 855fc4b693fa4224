"""A federation in which each organisation has its own authority, and forged certificates."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from laser_vfl.security import authority as wire
from laser_vfl.security.certificate_files import file_name, init_authority, issue
from laser_vfl.security.identity import Identity
from tests.support.daemons.harness import Authority, Site

Tls = dict[str, str]
"""Files: ca, cert and key."""


class OwnAuthorities(Authority):
    """One authority for each organisation; `telco` has made one that claims to be for everybody."""

    def __init__(self, directory: Path, organisations: list[str], federation: str) -> None:
        self.directory = directory
        self.federation = federation
        now = datetime.now(UTC)
        self.of: dict[str, wire.Authority] = {}
        for name in organisations:
            limited_to = "" if name == "telco" else name
            self.of[name] = init_authority(directory / name, federation, limited_to, now=now)

    def issue(self, name: str) -> Tls:
        """Return what somebody shows, and the authority of its own organisation."""
        identity = self.identity(name)
        home = self.directory / identity.voucher
        path = home / f"{file_name(identity)}.pem"
        if not path.exists():
            issue(self.of[identity.voucher], home, [identity], now=datetime.now(UTC))
        return {"ca": str(home / "ca.pem"), "cert": str(path), "key": str(path.with_suffix(".key"))}

    def section(self, name: str) -> dict[str, Any]:
        """Return the `tls` section of a daemon."""
        own = self.issue(name)
        trusted = {each: str(self.directory / each / "ca.pem") for each in self.of}
        return {"authorities": trusted, "cert": own["cert"], "key": own["key"]}

    def channel(self, address: str, to: str, name: str = "tester") -> grpc.Channel:
        """Return a channel of somebody who holds a good certificate."""
        return self.channel_with(address, to, self.issue(name))

    def channel_with(self, address: str, to: str, shown: Tls | None) -> grpc.Channel:
        """Return a channel to a daemon that is trusted, whatever is shown to it."""
        root = (self.directory / self.identity(to).voucher / "ca.pem").read_bytes()
        pair = [Path(shown[part]).read_bytes() for part in ("key", "cert")] if shown else []
        credentials = grpc.ssl_channel_credentials(root, *pair)
        options = [("grpc.ssl_target_name_override", self.identity(to).dns)]
        return grpc.secure_channel(address, credentials, options=options)


class OwnAuthoritiesSite(Site):
    """A site whose daemons trust each organisation's authority for that organisation alone."""

    authority: OwnAuthorities

    def _with_tls(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        return {**config, "tls": self.authority.section(name)}


def forge(
    directory: Path,
    signer: wire.Authority,
    *,
    uris: list[str],
    dns: str = "",
    age: timedelta = timedelta(minutes=5),
    life: timedelta = timedelta(days=1),
) -> Tls:
    """Return a certificate that says whatever is wanted, signed by an authority that is at hand."""
    directory.mkdir(parents=True, exist_ok=True)
    key = wire.new_key()
    begins_at = datetime.now(UTC) - age
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    if dns:
        names.append(x509.DNSName(dns))
    builder = (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins_at)
        .not_valid_after(begins_at + life)
        .subject_name(wire.subject_of(Identity("trial", "client", "bank")))
        .issuer_name(signer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signer.key, hashes.SHA256())
    path = directory / f"{certificate.serial_number:x}.pem"
    path.write_bytes(wire.certificate_pem(certificate))
    path.with_suffix(".key").write_bytes(wire.key_pem(key))
    path.with_suffix(".key").chmod(0o600)
    return {"ca": "", "cert": str(path), "key": str(path.with_suffix(".key"))}
