"""What a certificate says: whom it names, who vouches for that, and for how long."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import NameOID

from laser_vfl.core.errors import IdentityError, printable
from laser_vfl.private_files import require_private
from laser_vfl.security.identity import Identity, parse_identity

MAKE_ONE = "make one with `laser-vfl certs`"


@dataclass(frozen=True)
class Certificate:
    """A certificate in a file. An authority names nobody, so it has no identity."""

    path: Path
    subject: str
    identity: Identity | None
    dns_names: tuple[str, ...]
    issuer: str
    serial: int
    not_before: datetime
    not_after: datetime
    fingerprint: str
    is_authority: bool
    public_key: bytes

    def key_matches(self, key_path: Path) -> bool:
        """Return whether a file holds the key of this certificate."""
        return public_bytes(read_key(key_path).public_key()) == self.public_key


def read_certificate(path: Path) -> Certificate:
    """Return the certificate in a file, the first if there are several."""
    return read_certificates(path)[0]


def read_certificates(path: Path) -> list[Certificate]:
    """Return all certificates in a file, in order."""
    content = read_pem(path)
    try:
        return [_described(path, each) for each in x509.load_pem_x509_certificates(content)]
    except (ValueError, UnsupportedAlgorithm):
        raise IdentityError(
            "holds no certificate that can be read", where=str(path), hint=MAKE_ONE
        ) from None


def verify_issued_by(leaf_pem: bytes, authority_pem: bytes, now: datetime) -> bool:
    """Return whether one of these authorities has signed a certificate, and both are valid now.

    A serial number that is not positive is not valid (RFC 5280), whatever the library makes of it.
    """
    try:
        leaf = x509.load_pem_x509_certificate(leaf_pem)
        authorities = x509.load_pem_x509_certificates(authority_pem)
    except (ValueError, UnsupportedAlgorithm):
        return False
    if leaf.serial_number <= 0:
        return False
    return any(_has_issued(authority, leaf, now) for authority in authorities)


def _has_issued(authority: x509.Certificate, leaf: x509.Certificate, now: datetime) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
        if not is_authority(authority):
            return False
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return all(
        each.not_valid_before_utc <= now <= each.not_valid_after_utc for each in (leaf, authority)
    )


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may sign others."""
    try:
        constraints = extensions_of(certificate).get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def extensions_of(
    of: x509.Certificate | x509.CertificateSigningRequest,
) -> x509.Extensions:
    """Return the extensions; raises ValueError for what cannot be read, or stands there twice."""
    try:
        return of.extensions
    except x509.DuplicateExtension as error:
        raise ValueError(str(error)) from None


def named_by(extensions: x509.Extensions) -> tuple[Identity | None, tuple[str, ...]]:
    """Return whom the alternative names mean, and the DNS names; two URIs mean nobody."""
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None, ()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    identity = parse_identity(uris[0]) if len(uris) == 1 else None
    return identity, tuple(names.get_values_for_type(x509.DNSName))


def name_part(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    """Return one attribute of a subject or issuer; empty if it has none."""
    return next((printable(str(part.value)) for part in name.get_attributes_for_oid(oid)), "")


def public_bytes(key: PublicKeyTypes) -> bytes:
    """Return a public key in the one form in which keys are compared."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def read_key(path: Path) -> PrivateKeyTypes:
    """Return the private key in a file."""
    content = read_pem(path)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise IdentityError(
            "holds no private key that can be read, or it has a pass phrase",
            where=str(path),
            hint=MAKE_ONE,
        ) from None
    require_private(path, IdentityError)
    return key


def read_pem(path: Path) -> bytes:
    """Return what is in a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(
            f"cannot be read ({error.strerror})", where=str(path), hint="check the path"
        ) from None


def _described(path: Path, certificate: x509.Certificate) -> Certificate:
    identity, dns_names = named_by(extensions_of(certificate))
    return Certificate(
        path=path,
        subject=name_part(certificate.subject, NameOID.COMMON_NAME),
        identity=identity,
        dns_names=dns_names,
        issuer=name_part(certificate.issuer, NameOID.COMMON_NAME),
        serial=certificate.serial_number,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        is_authority=is_authority(certificate),
        public_key=public_bytes(certificate.public_key()),
    )
