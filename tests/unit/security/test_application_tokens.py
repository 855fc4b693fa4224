"""Tokens of applications: a file for its owner's eyes, with hashes, followed when it changes."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.application_tokens import Tokens
from laser_vfl.security.token_file import (
    Token,
    add_token,
    hash_of,
    read_tokens,
    revoke_tokens,
)

CRM, WEB = "c" * 32, "w" * 40
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens.txt"
    path.touch(0o600)
    path.write_text(f"# name and token\n\ncrm {CRM}\n")
    return path


def holders(tokens):
    """Whose each of the two tokens is; None if it is not good."""
    found = []
    for token in (CRM, WEB):
        try:
            found.append(tokens.application(token))
        except IdentityError:
            found.append(None)
    return found


def test_the_file_is_followed(path):
    tokens = Tokens(path)
    assert holders(tokens) == ["crm", None]
    path.write_text(f"crm {CRM}\nweb  {WEB} \n")
    assert holders(tokens) == ["crm", "web"]
    path.write_text("")
    assert holders(tokens) == [None, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"crm {CRM[1:]}", "tokens.txt:1: expected a name and a token"),
        (f"\nCRM {CRM}", "tokens.txt:2: "),
        (f"crm {CRM} more", "tokens.txt:1: "),
        (CRM, "tokens.txt:1: "),
        ("\udcff", "cannot be read as text"),
        (f"crm sha256:{'0' * 64}", "tokens.txt:1: "),
        (f"crm sha256:{'0' * 63} unknown never", "tokens.txt:1: "),
        (f"crm sha256:{'0' * 64} unknown tomorrow", "tokens.txt:1: "),
        (f"crm sha256:{'0' * 64} 2026-01-01 never", "tokens.txt:1: "),
        (f"crm {CRM} unknown never", "tokens.txt:1: "),
    ],
)
def test_a_wrong_file_is_said_at_the_start_and_lets_nobody_in_later(text, said, path, caplog):
    tokens = Tokens(path)
    caplog.clear()
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as refused:
        Tokens(path)
    assert said in str(refused.value)
    assert CRM not in str(refused.value)
    assert holders(tokens) == [None, None]
    assert holders(tokens) == [None, None]
    assert len(caplog.records) == 1
    path.write_text(f"web {WEB}\n")
    assert holders(tokens) == [None, "web"]


def test_nobody_else_may_read_it(path):
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Tokens(path)
    path.chmod(0o600)
    tokens = Tokens(path)
    path.write_text(f"web {WEB}\n")
    path.chmod(0o644)
    assert holders(tokens) == [None, None]
    path.chmod(0o440)
    assert holders(tokens) == [None, "web"], "as a Secret of Kubernetes; only its mode has changed"


def test_a_file_that_is_gone(path):
    tokens = Tokens(path)
    path.unlink()
    assert holders(tokens) == [None, None]
    with pytest.raises(ConfigError):
        Tokens(path)


def test_tokens_that_are_there_as_they_are_are_a_warning_with_what_to_do(path, caplog):
    tokens = Tokens(path)
    [record] = caplog.records
    assert "has the tokens of crm as they are" in record.getMessage()
    assert "`laser-vfl tokens add`" in record.getMessage()
    assert CRM not in caplog.text
    holders(tokens)
    assert len(caplog.records) == 1, "once, until the file changes"


def test_of_two_plain_lines_the_later_one_counts_as_it_always_has(path):
    path.write_text(f"crm {CRM}\ncrm {WEB}\n")
    assert holders(Tokens(path)) == [None, "crm"]


def test_a_token_that_is_made_is_good_until_it_ends(tmp_path, caplog):
    path = tmp_path / "new.txt"
    made = add_token(path, "crm", NOW, NOW + DAY)
    assert re.fullmatch(r"[0-9a-f]{64}", made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert made not in path.read_text()
    assert hash_of(made).hex() in path.read_text()
    clock = [NOW]
    tokens = Tokens(path, lambda: clock[0])
    assert not caplog.records
    assert tokens.application(made) == "crm"
    for shown in (hash_of(made).hex(), f"sha256:{hash_of(made).hex()}", made[:-1], made + "0", ""):
        with pytest.raises(IdentityError, match="none of those"):
            tokens.application(shown)
    clock[0] = NOW + DAY - timedelta(seconds=1)
    assert tokens.application(made) == "crm"
    clock[0] = NOW + DAY
    with pytest.raises(IdentityError, match="token of crm has expired"):
        tokens.application(made)


def test_an_application_may_have_two_while_it_changes_from_one_to_the_other(path):
    old = add_token(path, "web", NOW, None)
    new = add_token(path, "web", NOW, NOW + DAY)
    tokens = Tokens(path, lambda: NOW)
    assert tokens.application(old) == tokens.application(new) == "web"
    first, second = (token for token in read_tokens(path) if token.name == "web")
    assert [first.ends_at, second.ends_at] == [None, NOW + DAY]
    assert revoke_tokens(path, "web", first.id) == [first]
    assert tokens.application(new) == "web"
    with pytest.raises(IdentityError, match="none of those"):
        tokens.application(old)
    revoke_tokens(path, "web")
    with pytest.raises(IdentityError, match="none of those"):
        tokens.application(new)
    for name, token_id in (("web", None), ("crm", "00000000"), ("nobody", None)):
        with pytest.raises(ConfigError, match=f"no such token of {name}"):
            revoke_tokens(path, name, token_id)


def test_a_change_hashes_what_was_there_as_it_is_and_keeps_it_good(path):
    add_token(path, "web", NOW, None)
    text = path.read_text()
    assert CRM not in text
    assert "# name and token" in text.splitlines()
    assert path.stat().st_mode & 0o777 == 0o600
    assert holders(Tokens(path)) == ["crm", None]
    crm, _ = read_tokens(path)
    assert crm == Token("crm", hash_of(CRM))
    add_token(path, "web", NOW, None)
    assert text.splitlines()[:-1] == path.read_text().splitlines()[: len(text.splitlines()) - 1]


def test_a_file_that_cannot_be_written_is_an_error_for_people(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        add_token(tmp_path / "nowhere" / "tokens.txt", "crm", NOW, None)
