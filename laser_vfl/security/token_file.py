"""The file of applications' tokens: whose each is, its hash, when it was made and when it ends.

A token is shown once, when it is made. The file has its SHA-256, which is enough for 32 random
bytes. Lines of a name and the token itself, as an earlier release had them, are read, too.
"""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from laser_vfl.atomic_files import NewFile, replace_files
from laser_vfl.config.field_types import is_name
from laser_vfl.core.errors import ConfigError
from laser_vfl.private_files import FILE_MODE, require_private

MIN_LETTERS = 32
TOKEN_BYTES = 32
ID_LETTERS = 8

_NEVER = "never"
_UNKNOWN = "unknown"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_HASHED = re.compile(r"sha256:[0-9a-f]{64}")
_HEAD = "# Tokens of applications, written by `laser-vfl tokens`: name, hash, made, ends."


@dataclass(frozen=True)
class Token:
    """What the file knows of one token."""

    name: str
    sha256: bytes
    made_at: datetime | None = None
    """None where a line does not say."""
    ends_at: datetime | None = None
    """None if it never does."""
    is_plain: bool = False
    """Whether the file has the token itself."""

    @property
    def id(self) -> str:
        """What tells the tokens of an application apart, and says nothing of them."""
        return self.sha256.hex()[:ID_LETTERS]

    def is_over(self, now: datetime) -> bool:
        """Whether it is not good any more."""
        return self.ends_at is not None and now >= self.ends_at

    def line(self) -> str:
        """Return its line of the file, with its hash."""
        made, ends = shown_time(self.made_at, _UNKNOWN), shown_time(self.ends_at, _NEVER)
        return f"{self.name} sha256:{self.sha256.hex()} {made} {ends}"


def hash_of(token: str) -> bytes:
    """Return what the file has in place of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def shown_time(moment: datetime | None, otherwise: str) -> str:
    """Return a time as the file and the command show it."""
    return otherwise if moment is None else moment.strftime(_TIME)


def read_tokens(path: Path) -> list[Token]:
    """Return the tokens of a private file; raises what is wrong with it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "cannot be read as text",
            where=str(path),
            hint="make it with `laser-vfl tokens add NAME --config FILE`",
        ) from None
    require_private(path, ConfigError)
    return _parsed(text, path)


def add_token(path: Path, name: str, made_at: datetime, ends_at: datetime | None) -> str:
    """Make a token, put its hash into the file, which may be a new one, and return the token."""
    made = secrets.token_hex(TOKEN_BYTES)
    with _changing(path) as tokens:
        tokens.append(Token(name, hash_of(made), made_at, ends_at))
    return made


def revoke_tokens(path: Path, name: str, token_id: str | None = None) -> list[Token]:
    """Take the tokens of an application out of the file, or one of them; return those."""
    with _changing(path) as tokens:
        gone = [t for t in tokens if t.name == name and token_id in (None, t.id)]
        if not gone:
            raise ConfigError(
                f"there is no such token of {name}",
                where=str(path),
                hint="`laser-vfl tokens list --config FILE` shows those that there are",
            )
        tokens[:] = [token for token in tokens if token not in gone]
    return gone


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """Give the tokens of a file to change, and write it with hashes alone. One at a time."""
    try:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # so that of two commands neither is lost
            tokens = read_tokens(path) if path.exists() else []
            yield tokens
            _write(path, tokens)
        finally:
            os.close(directory)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})",
            where=str(path),
            hint="run this where the file is kept, as the user whom the daemon runs as",
        ) from None


def _write(path: Path, tokens: Sequence[Token]) -> None:
    lines = [_HEAD]
    if path.exists():
        kept = (line for line in path.read_text("utf-8").splitlines() if line.startswith("#"))
        lines += [line for line in kept if line != _HEAD]
    lines += [token.line() for token in tokens]
    content = "".join(f"{line}\n" for line in lines).encode()
    replace_files([NewFile(path, [content], FILE_MODE, keeps_readers=True)])


def _parsed(text: str, path: Path) -> list[Token]:
    found: list[Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token = _token(words)
        if token is None:
            raise ConfigError(
                f"expected a name and a token of at least {MIN_LETTERS} letters, or its hash with "
                "the times at which it was made and ends",
                where=f"{path}:{number}",
                hint="make one with `laser-vfl tokens add NAME --config FILE`",
            )
        if token.is_plain:  # of two such lines the later one has always counted
            found = [other for other in found if not (other.is_plain and other.name == token.name)]
        found.append(token)
    return found


def _token(words: Sequence[str]) -> Token | None:
    """Return the token of a line; None if it is none."""
    if len(words) not in (2, 4) or not is_name(words[0]):
        return None
    name, secret, *times = words
    is_hashed = _HASHED.fullmatch(secret) is not None
    if is_hashed != bool(times):
        return None
    if not is_hashed:
        return Token(name, hash_of(secret), is_plain=True) if len(secret) >= MIN_LETTERS else None
    try:
        made_at = None if times[0] == _UNKNOWN else _time(times[0])
        ends_at = None if times[1] == _NEVER else _time(times[1])
    except ValueError:
        return None
    return Token(name, bytes.fromhex(secret.removeprefix("sha256:")), made_at, ends_at)


def _time(text: str) -> datetime:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
