"""Requests for a certificate: what is taken over from them, and which are refused."""

import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from laser_vfl.core.errors import IdentityError
from laser_vfl.security.authority import new_authority, new_key
from laser_vfl.security.certificate_files import (
    init_authority,
    sign_request,
    write_request,
)
from laser_vfl.security.certificates import (
    named_by,
    read_certificate,
)
from laser_vfl.security.signing_requests import read_request
from tests.support.data.certificate_parties import BANK, NOW, SHOP, value


def test_a_request_is_signed_without_its_key(tmp_path):
    authority = init_authority(tmp_path / "ca", "churn", now=NOW)
    path = write_request(tmp_path / "bank", BANK)
    assert stat.S_IMODE((tmp_path / "bank" / "bank.key").stat().st_mode) == 0o600
    sign_request(authority, read_request(path), tmp_path / "bank" / "bank.pem", now=NOW)
    certificate = read_certificate(tmp_path / "bank" / "bank.pem")
    assert certificate.identity == BANK
    assert certificate.key_matches(tmp_path / "bank" / "bank.key")
    assert sorted(each.name for each in (tmp_path / "ca").iterdir()) == ["ca.key", "ca.pem"]
    with pytest.raises(IdentityError, match="is there already"):
        sign_request(authority, read_request(path), tmp_path / "bank" / "bank.pem", now=NOW)


def test_only_the_identity_is_taken_from_a_request(tmp_path):
    churn = new_authority("churn", "", 1825, NOW)
    names = [
        x509.UniformResourceIdentifier(BANK.uri),
        x509.DNSName("shop.client.churn"),
        x509.DNSName("coordinator.churn"),
    ]
    request = _request(tmp_path, names, x509.BasicConstraints(ca=True, path_length=None))
    certificate = churn.vouch(request.identity, request.key, 30, NOW)
    assert named_by(certificate.extensions) == (BANK, ("bank.client.churn",))
    assert not value(certificate, x509.BasicConstraints).ca
    assert certificate.subject.rfc4514_string() == "CN=bank"


def test_requests_that_are_refused(tmp_path):
    uri = x509.UniformResourceIdentifier
    with pytest.raises(IdentityError, match="exactly one party"):
        _request(tmp_path, [uri(BANK.uri), uri(SHOP.uri)])
    with pytest.raises(IdentityError, match="exactly one party"):
        _request(tmp_path, [x509.DNSName("bank.client.churn")])
    with pytest.raises(IdentityError, match="another kind than ECDSA"):
        _request(tmp_path, [uri(BANK.uri)], key=ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(IdentityError, match="another kind than ECDSA"):
        _request(tmp_path, [uri(BANK.uri)], key=rsa.generate_private_key(65537, 1024))
    (tmp_path / "x.csr").write_bytes(b"nonsense")
    with pytest.raises(IdentityError, match="no request that can be read"):
        read_request(tmp_path / "x.csr")
    with pytest.raises(IdentityError, match="cannot be read"):
        read_request(tmp_path / "nowhere.csr")


def test_a_request_with_anothers_key_is_refused(tmp_path):
    path = write_request(tmp_path, BANK)
    request = x509.load_pem_x509_csr(path.read_bytes())
    der = bytearray(request.public_bytes(serialization.Encoding.DER))
    other = serialization.PublicFormat.SubjectPublicKeyInfo
    old = request.public_key().public_bytes(serialization.Encoding.DER, other)
    new = new_key().public_key().public_bytes(serialization.Encoding.DER, other)
    forged = x509.load_der_x509_csr(bytes(der).replace(old, new))
    path.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(IdentityError, match="not signed with the key"):
        read_request(path)


def _request(directory, names, *extensions, key=None):
    key = key or new_key()
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shop")]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    path = directory / "x.csr"
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path.write_bytes(pem)
    return read_request(path)
