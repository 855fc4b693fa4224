"""Certificate authorities: one of a federation, or one organisation's own."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from laser_vfl.core.errors import ConfigError, IdentityError, quoted
from laser_vfl.security.certificates import is_authority, name_part, public_bytes
from laser_vfl.security.identity import Identity, client_of, coordinator_of, parse_identity

AUTHORITY_DAYS = 1825
PARTY_DAYS = 30

CLOCKS_DIFFER = timedelta(minutes=5)
LONGEST_COMMON_NAME = 64


@dataclass(frozen=True)
class Authority:
    """A certificate that signs others, and its key.

    `organisation` is empty where one authority vouches for the whole federation. Otherwise it
    vouches for that client and its applications, or, as "coordinator", for the coordinator and
    its operators.
    """

    federation: str
    organisation: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def vouch(
        self, identity: Identity, key: ec.EllipticCurvePublicKey, days: int, now: datetime
    ) -> x509.Certificate:
        """Return a certificate that the holder of a key is who it says."""
        self._check_may_vouch_for(identity)
        ends_at = self.certificate.not_valid_after_utc
        if ends_at <= now:
            raise IdentityError(
                f"the authority has expired on {ends_at:%Y-%m-%d}",
                hint="make a new one with `laser-vfl certs init`",
            )
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.dns:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(key, now, min(now + timedelta(days=days), ends_at))
            .subject_name(subject_of(identity))
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(names_of(identity), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        return builder.sign(self.key, hashes.SHA256())

    def _check_may_vouch_for(self, identity: Identity) -> None:
        check_identity(identity)
        whose = _common_name(self.federation, self.organisation)
        if identity.federation != self.federation:
            raise IdentityError(
                f"the {whose} vouches for nobody in {quoted(identity.federation)}",
                hint=f"ask the authority of {identity.federation}",
            )
        if self.organisation not in ("", identity.voucher):
            raise IdentityError(
                f"the {whose} may not vouch for {identity}",
                hint=f"ask the authority of {identity.voucher}",
            )


def new_authority(federation: str, organisation: str, days: int, now: datetime) -> Authority:
    """Return a new authority of a federation, or of one organisation in it."""
    owner = _owner(federation, organisation)
    check_identity(owner)
    key = new_key()
    parts = {
        NameOID.ORGANIZATION_NAME: federation,
        NameOID.ORGANIZATIONAL_UNIT_NAME: organisation,
        NameOID.COMMON_NAME: _common_name(federation, organisation)[:LONGEST_COMMON_NAME],
    }
    subject = x509.Name([x509.NameAttribute(oid, part) for oid, part in parts.items() if part])
    builder = (
        _builder(key.public_key(), now, now + timedelta(days=days))
        .subject_name(subject)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    if organisation:
        builder = builder.add_extension(
            x509.NameConstraints(
                permitted_subtrees=[x509.DNSName(owner.dns)], excluded_subtrees=None
            ),
            critical=True,
        )
    return Authority(federation, organisation, builder.sign(key, hashes.SHA256()), key)


def known_authority(certificate: x509.Certificate, key: object) -> Authority:
    """Return the authority that a certificate and its key are."""
    federation = name_part(certificate.subject, NameOID.ORGANIZATION_NAME)
    organisation = name_part(certificate.subject, NameOID.ORGANIZATIONAL_UNIT_NAME)
    owner = _owner(federation, organisation)
    if (
        not is_authority(certificate)
        or parse_identity(owner.uri) != owner
        or not isinstance(key, ec.EllipticCurvePrivateKey)
    ):
        raise IdentityError(
            "is no authority of a federation", hint="make one with `laser-vfl certs init`"
        )
    if public_bytes(key.public_key()) != public_bytes(certificate.public_key()):
        raise IdentityError(
            "the authority's certificate and key do not belong together",
            hint="bring back the files that `laser-vfl certs init` has made",
        )
    return Authority(federation, organisation, certificate, key)


def check_identity(identity: Identity) -> None:
    """Refuse names that cannot be told from others."""
    if parse_identity(identity.uri) != identity:
        raise ConfigError(
            f"{quoted(identity.uri)} names nobody",
            hint="names are 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit",
        )
    if identity.role in ("client", "application") and identity.voucher == "coordinator":
        raise ConfigError(
            'a client cannot be called "coordinator"', hint="its authority would be mistaken"
        )


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as it is written to a file."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as it is written to a file."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def subject_of(identity: Identity) -> x509.Name:
    """Return the subject of a party's certificate: its short name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name or identity.role)])


def names_of(identity: Identity) -> x509.SubjectAlternativeName:
    """Return the names of a party's certificate: its URI, and that under which it is dialled."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    if identity.dns:
        names.append(x509.DNSName(identity.dns))
    return x509.SubjectAlternativeName(names)


def _owner(federation: str, organisation: str) -> Identity:
    """Return the daemon of whoever owns an authority."""
    if organisation in ("", "coordinator"):
        return coordinator_of(federation)
    return client_of(federation, organisation)


def _common_name(federation: str, organisation: str) -> str:
    return (
        f"{organisation}'s authority in {federation}" if organisation else f"{federation} authority"
    )


def _builder(
    key: ec.EllipticCurvePublicKey, now: datetime, ends_at: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(ends_at)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
