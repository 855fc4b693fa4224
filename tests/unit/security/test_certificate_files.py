"""Certificates and keys on disk: who may read them, and what is never overwritten."""

import ssl
import stat
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.authority import certificate_pem, new_authority
from laser_vfl.security.certificate_files import (
    init_authority,
    issue,
    load_authority,
    make_federation,
    renew,
    write_request,
)
from laser_vfl.security.certificates import (
    read_certificate,
    read_certificates,
)
from laser_vfl.security.key_files import PRIVATE, new_file, write_together
from tests.support.data.certificate_parties import BANK, DAY, NOW, SHOP


def test_reading_what_was_written(tmp_path):
    made = init_authority(tmp_path, "churn", "bank", now=NOW)
    (path,) = issue(made, tmp_path, [BANK], days=9, now=NOW)
    certificate = read_certificate(path)
    assert certificate.identity == BANK
    assert certificate.dns_names == ("bank.client.churn",)
    assert (certificate.subject, certificate.issuer) == ("bank", "bank's authority in churn")
    assert (certificate.not_before, certificate.not_after) == (
        NOW - timedelta(minutes=5),
        NOW + 9 * DAY,
    )
    assert not certificate.is_authority
    assert certificate.key_matches(tmp_path / "bank.key")
    assert not certificate.key_matches(tmp_path / "ca.key")
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    assert certificate.fingerprint == digest.finalize().hex()
    authority = read_certificate(tmp_path / "ca.pem")
    assert (authority.is_authority, authority.identity) == (True, None)


def test_an_authority_is_found_again_with_its_names(tmp_path):
    for organisation in ("", "bank", "coordinator"):
        made = init_authority(tmp_path / f"of-{organisation}", "churn", organisation, now=NOW)
        found = load_authority(tmp_path / f"of-{organisation}")
        assert (found.federation, found.organisation) == ("churn", organisation)
        assert found.certificate == made.certificate
        assert found.key.private_numbers() == made.key.private_numbers()


def test_a_bundle_of_authorities(tmp_path):
    pems = [
        certificate_pem(new_authority("churn", name, 9, NOW).certificate) for name in ("bank", "a")
    ]
    (tmp_path / "trust.pem").write_bytes(b"".join(pems))
    subjects = [each.subject for each in read_certificates(tmp_path / "trust.pem")]
    assert subjects == ["bank's authority in churn", "a's authority in churn"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\x00", "of another kind"])
def test_what_is_no_certificate_is_named(content, tmp_path):
    path = tmp_path / "bank.pem"
    if isinstance(content, str):
        make_federation(tmp_path, "churn", ["bank"])
        content = (tmp_path / "bank.key").read_bytes()
    path.write_bytes(content)
    with pytest.raises(IdentityError, match="no certificate that can be read") as caught:
        read_certificate(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_what_is_no_key_is_named(tmp_path):
    make_federation(tmp_path, "churn", ["bank"])
    certificate = read_certificate(tmp_path / "bank.pem")
    for wrong in ("bank.pem", "nowhere.key"):
        with pytest.raises(IdentityError) as caught:
            certificate.key_matches(tmp_path / wrong)
        assert caught.value.where == str(tmp_path / wrong)


def test_what_is_no_authority_is_named(tmp_path):
    with pytest.raises(IdentityError, match="cannot be read"):
        load_authority(tmp_path)
    make_federation(tmp_path, "churn", ["bank"])
    keep = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.key").write_bytes((tmp_path / "bank.key").read_bytes())
    with pytest.raises(IdentityError, match="do not belong together"):
        load_authority(tmp_path)
    (tmp_path / "ca.key").write_bytes(keep)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "bank.pem").read_bytes())
    with pytest.raises(IdentityError, match="is no authority") as caught:
        load_authority(tmp_path)
    assert caught.value.where == str(tmp_path / "ca.pem")


def test_an_authority_of_another_kind_is_none(tmp_path):
    make_federation(tmp_path, "churn", [])
    pem = rsa.generate_private_key(65537, 1024).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "ca.key").write_bytes(pem)
    with pytest.raises(IdentityError, match="is no authority"):
        load_authority(tmp_path)


def test_keys_are_private_and_nothing_is_left_over(tmp_path):
    directory = tmp_path / "certs"
    make_federation(directory, "churn", ["bank"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    names = ("ca", "coordinator", "bank")
    assert modes == {f"{name}.key": 0o600 for name in names} | {
        f"{name}.pem": 0o644 for name in names
    }
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for name in names:
        assert read_certificate(directory / f"{name}.pem").key_matches(directory / f"{name}.key")
        assert (directory / f"{name}.key").read_bytes().startswith(b"-----BEGIN PRIVATE KEY")


def test_nothing_is_overwritten(tmp_path):
    make_federation(tmp_path, "churn", ["bank"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    authority = load_authority(tmp_path)
    with pytest.raises(IdentityError, match="is there already"):
        init_authority(tmp_path, "churn", now=NOW)
    with pytest.raises(IdentityError, match="is there already"):
        issue(authority, tmp_path, [SHOP, BANK], now=NOW)
    with pytest.raises(IdentityError, match="is there already"):
        write_request(tmp_path, BANK)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_lone_key_is_not_overwritten_either(tmp_path):
    authority = init_authority(tmp_path, "churn", now=NOW)
    write_request(tmp_path, BANK)
    with pytest.raises(IdentityError, match=r"bank\.key: is there already"):
        issue(authority, tmp_path, [BANK], now=NOW)


def test_renewing_changes_key_and_certificate_and_keeps_who_may_read(tmp_path):
    make_federation(tmp_path, "churn", ["bank"])
    cert_path, key_path = tmp_path / "bank.pem", tmp_path / "bank.key"
    key_path.chmod(0o640)
    before, old_key = read_certificate(cert_path), key_path.read_bytes()
    assert renew(load_authority(tmp_path), tmp_path, [BANK], days=60, now=NOW) == [cert_path]
    after = read_certificate(cert_path)
    assert (after.identity, after.not_after) == (BANK, NOW + 60 * DAY)
    assert after.serial != before.serial
    assert key_path.read_bytes() != old_key
    assert after.key_matches(key_path)
    assert stat.S_IMODE(key_path.stat().st_mode) == 0o640
    key_path.chmod(0o666)
    renew(load_authority(tmp_path), tmp_path, [BANK], now=NOW)
    assert stat.S_IMODE(key_path.stat().st_mode) == 0o640


def test_what_cannot_be_written_is_said_and_cleaned_up(tmp_path):
    (tmp_path / "bank.pem").mkdir()
    files = [new_file(tmp_path / name, b"x", PRIVATE) for name in ("bank.pem", "bank.key")]
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        write_together(files)
    assert str(tmp_path / "bank.pem") in caught.value.where
    assert [path.name for path in tmp_path.iterdir()] == ["bank.pem"]
