"""Tokens of applications: a file for its owner's eyes, followed when it changes."""

import pytest

from laser_vfl.client.tokens import Tokens
from laser_vfl.core.errors import ConfigError

CRM, WEB = "c" * 32, "w" * 40


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens.txt"
    path.touch(0o600)
    path.write_text(f"# name and token\n\ncrm {CRM}\n")
    return path


def test_the_file_is_followed(path):
    tokens = Tokens(path)
    assert tokens() == {"crm": CRM}
    path.write_text(f"crm {CRM}\nweb  {WEB} \n")
    assert tokens() == {"crm": CRM, "web": WEB}
    path.write_text("")
    assert tokens() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"crm {CRM[1:]}", "tokens.txt:1: expected a name and a token"),
        (f"\nCRM {CRM}", "tokens.txt:2: "),
        (f"crm {CRM} more", "tokens.txt:1: "),
        (CRM, "tokens.txt:1: "),
        ("\udcff", "cannot be read as text"),
    ],
)
def test_a_wrong_file_is_said_at_the_start_and_lets_nobody_in_later(text, said, path, caplog):
    tokens = Tokens(path)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as refused:
        Tokens(path)
    assert said in str(refused.value)
    assert CRM not in str(refused.value)
    assert tokens() == {}
    assert tokens() == {}
    assert len(caplog.records) == 1
    path.write_text(f"web {WEB}\n")
    assert tokens() == {"web": WEB}


def test_nobody_else_may_read_it(path):
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Tokens(path)
    path.chmod(0o600)
    tokens = Tokens(path)
    path.write_text(f"web {WEB}\n")
    path.chmod(0o640)
    assert tokens() == {}
    path.chmod(0o600)
    assert tokens() == {"web": WEB}, "it is looked at again though only its mode has changed"


def test_a_file_that_is_gone(path):
    tokens = Tokens(path)
    path.unlink()
    assert tokens() == {}
    with pytest.raises(ConfigError):
        Tokens(path)
