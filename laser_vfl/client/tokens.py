"""The tokens by which applications may ask for predictions, from a file that may change."""

import logging
from pathlib import Path

from laser_vfl.config.names import is_name
from laser_vfl.core.errors import ConfigError
from laser_vfl.wire.key_files import stamp

log = logging.getLogger(__name__)

MIN_LETTERS = 32
OTHERS = 0o077


class Tokens:
    """Lines of a name and a token; the file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._tokens: dict[str, str] = {}
        self._read()

    def __call__(self) -> dict[str, str]:
        """Return the token of each application; while the file is wrong, nobody's is good."""
        try:
            self._read()
        except ConfigError as error:
            if self._tokens:
                log.warning("no token is taken any more: %s", error)
            self._tokens = {}
        return self._tokens

    def _read(self) -> None:
        where, hint = str(self._path), "write a line NAME TOKEN for each application"
        found_stamp = stamp(self._path)
        if found_stamp is not None and found_stamp == self._stamp:
            return
        try:
            mode, text = self._path.stat().st_mode, self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError("cannot be read as text", where=where, hint=hint) from None
        if mode & OTHERS:
            raise ConfigError(
                "can be read by others than its owner", where=where, hint=f"chmod 600 {where}"
            )
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not is_name(words[0]) or len(words[1]) < MIN_LETTERS:
                raise ConfigError(
                    f"expected a name and a token of at least {MIN_LETTERS} letters",
                    where=f"{where}:{number}",
                    hint="make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'",
                )
            found[words[0]] = words[1]
        self._tokens, self._stamp = found, found_stamp
