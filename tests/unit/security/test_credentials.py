"""Certificates are checked when they are loaded, and followed; plaintext stays at home."""

import logging
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from laser_vfl.core.errors import ExitCode, IdentityError
from laser_vfl.security.certificate_files import init_authority, issue, renew
from laser_vfl.security.credentials import (
    CredentialFiles,
    Credentials,
    load_credentials,
    plaintext,
)
from laser_vfl.security.identity import client_of, coordinator_of

BANK, SHOP = client_of("churn", "bank"), client_of("churn", "shop")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of two daemons and of an authority, and some that are wrong."""
    folder = tmp_path_factory.mktemp("tls")
    now = datetime.now(UTC)
    issue(init_authority(folder, "churn", now=now), folder, [BANK, SHOP], now=now)
    (folder / "words.pem").write_text("not a certificate")
    (folder / "empty.pem").write_bytes(b"")
    garbage = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
    (folder / "garbage.pem").write_text(garbage.format("CERTIFICATE"))
    (folder / "garbage.key").write_text(garbage.format("PRIVATE KEY"))
    (folder / "folder.pem").mkdir()
    return folder


@pytest.fixture
def files(made, tmp_path):
    return shutil.copytree(made, tmp_path / "tls")


def load(files, ca="ca.pem", cert="bank.pem", key="bank.key", me=BANK):
    return load_credentials(CredentialFiles(files / cert, files / key, files / ca), me)


def test_the_right_files_make_credentials_for_both_ends(files):
    credentials = load(files)
    assert credentials.secure
    assert credentials.federation == "churn"
    assert credentials.material.me == BANK
    assert credentials.for_server()
    assert credentials.for_channel(SHOP)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ca": "absent.pem"}, "absent.pem: cannot be read (No such file or directory)"),
        ({"cert": "absent.pem"}, "absent.pem: cannot be read"),
        ({"key": "absent.key"}, "absent.key: cannot be read"),
        ({"cert": "folder.pem"}, "folder.pem: cannot be read (Is a directory)"),
        ({"ca": "words.pem"}, "words.pem: holds no certificate in PEM form"),
        ({"ca": "bank.key"}, "bank.key: holds no certificate"),
        ({"ca": "garbage.pem"}, "garbage.pem: holds no certificate that can be read"),
        ({"cert": "empty.pem"}, "empty.pem: holds no certificate"),
        ({"cert": "bank.key", "key": "bank.pem"}, "bank.key: holds no certificate"),
        ({"key": "bank.pem"}, "bank.pem: holds no private key"),
        ({"key": "shop.key"}, "do not belong together"),
        ({"cert": "garbage.pem"}, "do not belong together"),
        ({"key": "garbage.key"}, "do not belong together"),
        ({"cert": "ca.pem", "key": "ca.key"}, "ca.pem: names nobody of a federation"),
        (
            {"cert": "shop.pem", "key": "shop.key"},
            "the certificate names spiffe://churn/client/shop, not spiffe://churn/client/bank",
        ),
    ],
)
def test_a_wrong_file_is_named(made, wrong, said):
    with pytest.raises(IdentityError) as refused:
        load(made, **wrong)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code is ExitCode.IDENTITY
    assert refused.value.hint


def refreshed(credentials):
    """What following the files does, once."""
    material = credentials.read_changes()
    if material is not None:
        credentials.change(material)
    return material


def renewed(folder, identity):
    authority = init_authority(folder / "again", "churn", now=datetime.now(UTC))
    renew(authority, folder, [identity], now=datetime.now(UTC))


def test_files_that_change_are_read_again(files):
    credentials = load(files)
    before, changed = credentials.material, credentials.changed
    assert refreshed(credentials) is None
    renewed(files, BANK)
    assert refreshed(credentials) is credentials.material
    assert credentials.material.serial != before.serial
    assert changed.is_set()
    assert not credentials.changed.is_set()
    assert refreshed(credentials) is None


def test_a_change_that_cannot_be_used_changes_nothing(files, caplog):
    credentials = load(files)
    before = credentials.material
    shutil.copy(files / "shop.key", files / "bank.key")
    with caplog.at_level(logging.WARNING):
        assert refreshed(credentials) is None
        assert refreshed(credentials) is None
    assert credentials.material is before
    (record,) = caplog.records
    assert "stays as it was" in record.message
    shutil.copy(files / "shop.pem", files / "bank.pem")
    assert refreshed(credentials) is None, "a certificate of somebody else is no better"
    (files / "bank.pem").unlink()
    assert refreshed(credentials) is None
    renewed(files, BANK)
    assert refreshed(credentials) is not None


def test_a_file_that_is_only_touched_is_no_change(files):
    credentials = load(files)
    os.utime(files / "bank.pem", (1, 1))
    assert refreshed(credentials) is None
    assert not credentials.changed.is_set()


def test_each_organisation_may_have_an_authority_of_its_own(files, tmp_path):
    theirs = tmp_path / "theirs"
    init_authority(theirs, "churn", "shop", now=datetime.now(UTC))
    authorities = {"bank": files / "ca.pem", "shop": theirs / "ca.pem"}
    own = CredentialFiles(files / "bank.pem", files / "bank.key", authorities=authorities)
    material = load_credentials(own, BANK).material
    assert material.authority_of(SHOP) == (theirs / "ca.pem").read_bytes()
    assert material.authority_of(BANK) == (files / "ca.pem").read_bytes()
    assert not material.is_one_for_all
    with pytest.raises(IdentityError, match=r"no authority for coordinator in tls\.authorities"):
        load_credentials(own, BANK).for_channel(coordinator_of("churn"))


@dataclass
class FakeAddress:
    """An address that is on loopback or not."""

    is_loopback: bool


def test_plaintext_needs_to_be_asked_for():
    with pytest.raises(IdentityError, match="--insecure"):
        plaintext("churn", {"listen": FakeAddress(True)}, allowed=False)


def test_plaintext_stays_on_loopback():
    here = {"listen": FakeAddress(True), "advertise": None}
    assert plaintext("churn", here, allowed=True).federation == "churn"
    assert not Credentials().secure
    with pytest.raises(IdentityError, match="only on loopback, and coordinator is"):
        plaintext("churn", {**here, "coordinator": FakeAddress(False)}, allowed=True)


def test_a_key_that_may_be_read_at_last_is_tried_again(files, caplog):
    credentials = load(files)
    renewed(files, BANK)
    good = (files / "bank.key").read_bytes()
    (files / "bank.key").write_bytes(b"locked away")
    assert refreshed(credentials) is None
    (files / "bank.key").write_bytes(good)
    assert refreshed(credentials) is not None
