"""What `tokens` does with a client's file of tokens, and what it prints."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.daemon_config import check_daemon_user, load_client_config
from laser_vfl.cli.terminal_tables import add_row, new_table
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.field_types import is_name
from laser_vfl.core.errors import ConfigError, quoted
from laser_vfl.security.token_file import (
    Token,
    add_token,
    hash_of,
    read_tokens,
    revoke_tokens,
    shown_time,
)


def run_add(config_path: Path, name: str, days: int | None, *, as_json: bool) -> None:
    """Make a token of an application; stdout gets the token, stderr what there is to say."""
    config, path = _opened(config_path, "add a token")
    if not is_name(name):
        raise ConfigError(
            f"{quoted(name)} is no name of an application",
            hint="use letters a-z, digits and - , as in crm",
        )
    num_plain = _num_plain(path)
    now = datetime.now(UTC).replace(microsecond=0)
    ends_at = None if days is None else now + timedelta(days=days)
    made = add_token(path, name, now, ends_at)
    token = Token(name, hash_of(made), now, ends_at)
    if as_json:
        print(json.dumps({**_facts(token, now), "token": made}))
    else:
        print(made)
    _say(f"token {token.id} of {name}, until {shown_time(ends_at, 'it is revoked')}: shown once")
    _say_hashed(num_plain)
    allowed = config.serving.applications
    if allowed is not None and name not in allowed:
        _say(f"{name} is not in serving.applications, so it is refused until it is")


def run_list(config_path: Path, *, as_json: bool) -> None:
    """Print what the file has, without anything that lets somebody in."""
    _, path = _read(config_path)
    now = datetime.now(UTC)
    tokens = read_tokens(path)
    if as_json:
        print(json.dumps({"tokens": [_facts(token, now) for token in tokens]}))
        return
    table = new_table("application", "id", "made", "ends", "state")
    for token in tokens:
        facts = _facts(token, now)
        ends = shown_time(token.ends_at, "never")
        add_row(table, token.name, token.id, facts["made"] or "unknown", ends, facts["state"])
    Console().print(table)


def run_revoke(config_path: Path, name: str, token_id: str | None, *, as_json: bool) -> None:
    """Take tokens out of the file."""
    _, path = _opened(config_path, "revoke a token")
    num_plain = _num_plain(path)
    gone = revoke_tokens(path, name, token_id)
    if as_json:
        print(json.dumps({"revoked": [{"application": t.name, "id": t.id} for t in gone]}))
    else:
        for token in gone:
            print(f"token {token.id} of {token.name} is revoked")
    _say_hashed(num_plain - sum(token.is_plain for token in gone))


def _read(config_path: Path) -> tuple[ClientConfig, Path]:
    config = load_client_config(config_path)
    if config.serving.tokens_file is None:
        raise ConfigError(
            "this client takes certificates, and no tokens",
            where=str(config_path),
            hint="add tokens_file: tokens.txt under serving, and start the client again",
        )
    return config, config.serving.tokens_file


def _opened(config_path: Path, doing: str) -> tuple[ClientConfig, Path]:
    """Return the configuration and the file of tokens, to be changed."""
    config, path = _read(config_path)
    check_daemon_user(config, doing)
    return config, path


def _num_plain(path: Path) -> int:
    try:
        tokens: Sequence[Token] = read_tokens(path) if path.exists() else ()
    except OSError:
        return 0  # what is to be changed says why it cannot be
    return sum(token.is_plain for token in tokens)


def _facts(token: Token, now: datetime) -> dict[str, Any]:
    state = "expired" if token.is_over(now) else "good"
    return {
        "application": token.name,
        "id": token.id,
        "made": shown_time(token.made_at, "") or None,
        "ends": shown_time(token.ends_at, "") or None,
        "state": "not hashed" if token.is_plain else state,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _say_hashed(num_plain: int) -> None:
    if num_plain:
        _say(f"{num_plain} tokens that stood there as they are became hashes, and stay good")
