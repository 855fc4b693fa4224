"""Certificates: whom they name, who may vouch for whom, and until when."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.authority import certificate_pem, new_authority, new_key
from laser_vfl.security.certificate_files import (
    file_name,
    write_request,
)
from laser_vfl.security.certificates import (
    named_by,
    verify_issued_by,
)
from laser_vfl.security.identity import Identity, client_of
from tests.support.data.certificate_parties import (
    ANN,
    BANK,
    COORDINATOR,
    CRM,
    DAY,
    NOW,
    PARTIES,
    SHOP,
    value,
    vouched,
)


@pytest.fixture
def churn():
    return new_authority("churn", "", 1825, NOW)


@pytest.mark.parametrize("name", PARTIES)
def test_a_certificate_says_who_it_is_and_nothing_else(name, churn):
    identity = PARTIES[name]
    certificate = vouched(churn, identity)
    names = value(certificate, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [identity.uri]
    assert names.get_values_for_type(x509.DNSName) == ([identity.dns] if identity.dns else [])
    assert len(names) == (2 if identity.dns else 1)
    purposes = set(value(certificate, x509.ExtendedKeyUsage))
    may_serve = name in ("coordinator", "bank")
    assert (ExtendedKeyUsageOID.SERVER_AUTH in purposes) == may_serve
    assert ExtendedKeyUsageOID.CLIENT_AUTH in purposes
    common_name = {"bank-crm": "crm", "operator-ann": "ann"}.get(name, name)
    assert certificate.subject.rfc4514_string() == f"CN={common_name}"
    assert file_name(identity) == name
    assert not value(certificate, x509.BasicConstraints).ca
    assert value(certificate, x509.AuthorityKeyIdentifier).key_identifier == (
        value(churn.certificate, x509.SubjectKeyIdentifier).digest
    )


def test_an_authority_signs_certificates_and_no_authorities(churn):
    constraints = churn.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (
        True,
        True,
        0,
    )
    usage = churn.certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert usage.value.crl_sign
    assert not usage.value.digital_signature
    assert isinstance(churn.key.curve, ec.SECP256R1)


@pytest.mark.parametrize(
    ("organisation", "may", "may_not", "subtree"),
    [
        ("bank", (BANK, CRM), (SHOP, COORDINATOR, ANN), "bank.client.churn"),
        ("shop", (SHOP,), (BANK, CRM, COORDINATOR, ANN), "shop.client.churn"),
        ("coordinator", (COORDINATOR, ANN), (BANK, SHOP, CRM), "coordinator.churn"),
    ],
)
def test_an_organisation_vouches_for_its_own(organisation, may, may_not, subtree):
    authority = new_authority("churn", organisation, 1825, NOW)
    limits = authority.certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert limits.critical
    assert limits.value.permitted_subtrees == [x509.DNSName(subtree)]
    for identity in may:
        assert named_by(vouched(authority, identity).extensions)[0] == identity
    for identity in may_not:
        with pytest.raises(IdentityError, match="may not vouch"):
            vouched(authority, identity)


def test_nobody_of_another_federation(churn):
    with pytest.raises(IdentityError, match='nobody in "loans"'):
        vouched(churn, client_of("loans", "bank"))


@pytest.mark.parametrize(
    "identity",
    [
        client_of("churn", "Bank"),
        client_of("churn", ""),
        client_of("churn", "../bank"),
        client_of("churn", "bank/application/crm"),
        client_of("churn", "coordinator"),
        Identity("churn", "application", "crm", "coordinator"),
        Identity("churn", "operator", "ann,bob"),
    ],
)
def test_names_that_could_mean_another_are_refused(identity, churn, tmp_path):
    with pytest.raises(ConfigError):
        vouched(churn, identity)
    with pytest.raises(ConfigError):
        write_request(tmp_path, identity)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("federation", "organisation"), [("Churn", ""), ("", ""), ("churn", "a.b"), ("a/b", "bank")]
)
def test_an_authority_has_proper_names(federation, organisation):
    with pytest.raises(ConfigError):
        new_authority(federation, organisation, 1825, NOW)


def test_the_longest_names_fit():
    longest = "a" * 64
    authority = new_authority(longest, longest, 1825, NOW)
    identity = Identity(longest, "application", longest, longest)
    assert named_by(vouched(authority, identity).extensions)[0] == identity


def test_a_certificate_lives_as_long_as_asked_and_never_beyond_its_authority():
    authority = new_authority("churn", "", 20, NOW)
    certificate = vouched(authority, BANK, days=7)
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + 7 * DAY
    assert vouched(authority, BANK, days=30).not_valid_after_utc == NOW + 20 * DAY
    with pytest.raises(IdentityError, match="has expired"):
        vouched(authority, BANK, now=NOW + 20 * DAY)


def test_verifying_who_has_signed_and_when(churn):
    leaf, authority = certificate_pem(vouched(churn, BANK)), certificate_pem(churn.certificate)
    other = certificate_pem(new_authority("churn", "", 1825, NOW).certificate)
    assert verify_issued_by(leaf, authority, NOW)
    assert not verify_issued_by(leaf, other, NOW)
    assert not verify_issued_by(leaf, leaf, NOW)
    assert not verify_issued_by(leaf, b"nonsense", NOW)
    assert not verify_issued_by(b"nonsense", authority, NOW)
    assert not verify_issued_by(leaf, authority, NOW - DAY)
    assert verify_issued_by(leaf, authority, NOW + 30 * DAY)
    assert not verify_issued_by(leaf, authority, NOW + 31 * DAY)


def test_a_party_is_no_authority(churn):
    key = new_key()
    bank = churn.vouch(BANK, key.public_key(), 30, NOW)
    impostor = replace(churn, certificate=bank, key=key)
    leaf = vouched(impostor, SHOP)
    leaf.verify_directly_issued_by(bank)  # the signature is right
    assert not verify_issued_by(certificate_pem(leaf), certificate_pem(bank), NOW)


def test_two_uris_name_nobody(churn):
    names = [x509.UniformResourceIdentifier(each.uri) for each in (BANK, SHOP)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(churn.certificate.subject)
        .issuer_name(churn.certificate.subject)
        .public_key(new_key().public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(churn.key, hashes.SHA256())
    )
    assert named_by(certificate.extensions) == (None, ())
