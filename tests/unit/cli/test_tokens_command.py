"""`tokens`: what is printed once, what is in the file, and what is refused."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from laser_vfl.cli.tokens.token_changes import run_add, run_list, run_revoke
from laser_vfl.core.errors import ConfigError
from laser_vfl.security.application_tokens import Tokens

PLAIN = "p" * 32


@pytest.fixture
def write(tmp_path):
    """Write a configuration; return where it is and where its tokens are."""

    def write(**serving):
        config = {
            "federation": "trial",
            "name": "bank",
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:1",
            "state": "./state",
            "data": {"train": "bank.csv", "id": "id"},
            "serving": serving,
        }
        path = tmp_path / "bank.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return write


@pytest.fixture
def config(write):
    return write(tokens_file="tokens.txt")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens.txt"


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_stdout_has_the_token_alone_and_the_file_never(config, file, capsys):
    run_add(config, "crm", 30, as_json=False)
    out, err = capsys.readouterr()
    token = out.removesuffix("\n")
    assert Tokens(file).application(token) == "crm"
    assert token not in err
    assert token not in file.read_text()
    assert "shown once" in err


def test_it_ends_when_it_is_asked_to(config, capsys):
    now = datetime.now(UTC)
    run_add(config, "crm", 30, as_json=True)
    run_add(config, "web", None, as_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert abs(datetime.fromisoformat(first["ends"]) - now - timedelta(days=30)) < timedelta(
        hours=1
    )
    assert second["ends"] is None
    run_list(config, as_json=True)
    listed = printed(capsys)["tokens"]
    for one, made in zip(listed, (first, second), strict=True):
        assert {**one, "token": made["token"]} == made
    assert [each["state"] for each in listed] == ["good", "good"]


def test_a_list_has_no_token_and_says_what_is_not_hashed(config, file, capsys):
    file.touch(0o600)
    over = "2020-01-01T00:00:00Z"
    file.write_text(f"crm {PLAIN}\nweb sha256:{'0' * 64} unknown {over}\n")
    run_list(config, as_json=True)
    crm, web = printed(capsys)["tokens"]
    assert (crm["state"], web["state"]) == ("not hashed", "expired")
    run_list(config, as_json=False)
    out = capsys.readouterr().out
    assert PLAIN not in out
    assert crm["id"] in out
    assert file.read_text().startswith(f"crm {PLAIN}"), "a list changes nothing"
    run_add(config, "app", 1, as_json=True)
    assert "1 tokens that stood there as they are became hashes" in capsys.readouterr().err
    assert PLAIN not in file.read_text()
    assert Tokens(file).application(PLAIN) == "crm"


def test_revoking_says_what_is_gone(config, file, capsys):
    for _ in range(2):
        run_add(config, "crm", 1, as_json=True)
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    run_revoke(config, "crm", one["id"], as_json=True)
    assert printed(capsys) == {"revoked": [{"application": "crm", "id": one["id"]}]}
    assert Tokens(file).application(other["token"]) == "crm"
    run_revoke(config, "crm", None, as_json=False)
    assert f"token {other['id']} of crm is revoked" in capsys.readouterr().out
    assert len(Tokens(file)) == 0


def test_what_is_refused(write, config, file, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="no name of an application"):
        run_add(config, "C R M", 1, as_json=False)
    with pytest.raises(ConfigError, match="no such token"):
        run_revoke(config, "crm", None, as_json=False)
    with pytest.raises(ConfigError, match="cannot be read as text"):
        run_list(config, as_json=False)
    (tmp_path / "state").mkdir()
    monkeypatch.setattr("laser_vfl.cli.daemon_config.os.geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        run_add(config, "crm", 1, as_json=False)
    assert not file.exists()
    with pytest.raises(ConfigError, match="takes certificates, and no tokens"):
        run_list(write(), as_json=False)


def test_an_application_that_may_not_ask_is_said(write, capsys):
    run_add(write(tokens_file="tokens.txt", applications=["web"]), "crm", 1, as_json=False)
    assert "crm is not in serving.applications" in capsys.readouterr().err
