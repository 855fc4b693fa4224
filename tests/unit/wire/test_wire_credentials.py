"""Certificates are checked when they are loaded, and plaintext stays at home."""

from dataclasses import dataclass

import pytest
import trustme

from laser_vfl.core.errors import ExitCode, IdentityError
from laser_vfl.wire.credentials import Credentials, load_credentials, plaintext


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of one daemon, and a key of another."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    for name in ("bank", "shop"):
        issued = authority.issue_cert("localhost")
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "words.pem").write_text("not a certificate")
    (folder / "empty.pem").write_bytes(b"")
    garbage = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
    (folder / "garbage.pem").write_text(garbage.format("CERTIFICATE"))
    (folder / "garbage.key").write_text(garbage.format("PRIVATE KEY"))
    (folder / "folder.pem").mkdir()
    return folder


def load(files, ca="ca.pem", cert="bank.pem", key="bank.key"):
    return load_credentials(files / ca, files / cert, files / key)


def test_the_right_files_make_credentials_for_both_ends(files):
    credentials = load(files)
    assert credentials.secure
    assert credentials.cert == (files / "bank.pem").read_bytes()
    assert credentials.for_server()
    assert credentials.for_channel()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ca": "absent.pem"}, "absent.pem: cannot be read (No such file or directory)"),
        ({"cert": "absent.pem"}, "absent.pem: cannot be read"),
        ({"key": "absent.key"}, "absent.key: cannot be read"),
        ({"cert": "folder.pem"}, "folder.pem: cannot be read (Is a directory)"),
        ({"ca": "words.pem"}, "words.pem: holds no certificate in PEM form"),
        ({"ca": "bank.key"}, "bank.key: holds no certificate"),
        ({"cert": "empty.pem"}, "empty.pem: holds no certificate"),
        ({"cert": "bank.key", "key": "bank.pem"}, "bank.key: holds no certificate"),
        ({"key": "bank.pem"}, "bank.pem: holds no private key"),
        ({"key": "shop.key"}, "do not belong together"),
        ({"cert": "garbage.pem"}, "do not belong together"),
        ({"key": "garbage.key"}, "do not belong together"),
    ],
)
def test_a_wrong_file_is_named(files, wrong, said):
    with pytest.raises(IdentityError) as refused:
        load(files, **wrong)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code is ExitCode.IDENTITY
    assert refused.value.hint


@dataclass
class FakeAddress:
    """An address that is on loopback or not."""

    is_loopback: bool


def test_plaintext_needs_to_be_asked_for():
    with pytest.raises(IdentityError, match="--insecure"):
        plaintext({"listen": FakeAddress(True)}, allowed=False)


def test_plaintext_stays_on_loopback():
    here = {"listen": FakeAddress(True), "advertise": None}
    assert plaintext(here, allowed=True) == Credentials()
    assert not Credentials().secure
    with pytest.raises(IdentityError, match="only on loopback, and coordinator is"):
        plaintext({**here, "coordinator": FakeAddress(False)}, allowed=True)
