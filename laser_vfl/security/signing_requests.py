"""Asking an authority for a certificate without showing it the key."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from laser_vfl.core.errors import IdentityError
from laser_vfl.security.authority import names_of, subject_of
from laser_vfl.security.certificates import extensions_of, named_by, public_bytes, read_pem
from laser_vfl.security.identity import Identity

ASK_AGAIN = "make it with `laser-vfl certs request`"


@dataclass(frozen=True)
class SigningRequest:
    """The identity and the key of a request for a certificate; nothing else is taken over."""

    identity: Identity
    key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """What both sides can compare, to see that nobody has put in another key."""
        return hashlib.sha256(public_bytes(self.key)).hexdigest()


def request_pem(identity: Identity, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a request for a certificate, signed with the key that it is about."""
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject_of(identity))
        .add_extension(names_of(identity), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_request(path: Path) -> SigningRequest:
    """Return the request in a file, if whoever made it holds the key."""
    content = read_pem(path)
    try:
        request = x509.load_pem_x509_csr(content)
        is_signed = request.is_signature_valid
        identity, _ = named_by(extensions_of(request))
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _refused(path, "holds no request that can be read") from None
    if not is_signed:
        raise _refused(path, "is not signed with the key that it is about")
    if identity is None:
        raise _refused(path, "does not name exactly one party of a federation")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused(path, "is about a key of another kind than ECDSA P-256")
    return SigningRequest(identity, key)


def _refused(path: Path, message: str) -> IdentityError:
    return IdentityError(message, where=str(path), hint=ASK_AGAIN)
