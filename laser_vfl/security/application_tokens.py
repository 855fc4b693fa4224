"""The tokens by which applications may ask for predictions, from a file that may change."""

import hmac
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from laser_vfl.atomic_files import Stamp, stamp
from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.token_file import Token, hash_of, read_tokens

log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class Tokens:
    """Tells whose a token is; the file is read again when it changes."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self._path = path
        self._clock = clock
        self._stamp: Stamp | None = None
        self._tokens: Sequence[Token] = ()
        self._read()

    def __len__(self) -> int:
        return len(self._tokens)

    def application(self, shown: str) -> str:
        """Return the application that a token was made for; raises if it is not good.

        While the file is wrong, nobody's is. All hashes are compared, each in the same time.
        """
        self._follow()
        sha256 = hash_of(shown)
        found = [t for t in self._tokens if hmac.compare_digest(t.sha256, sha256)]
        now = self._clock()
        for token in found:
            if not token.is_over(now):
                return token.name
        if found:
            raise IdentityError(
                f"the token of {found[0].name} has expired",
                hint="ask who runs this client for another one (`laser-vfl tokens add`)",
            )
        raise IdentityError("the token is none of those that are allowed here")

    def _follow(self) -> None:
        try:
            self._read()
        except ConfigError as error:
            if self._tokens:
                log.warning("no token is taken any more: %s", error)
            self._tokens = ()

    def _read(self) -> None:
        found = stamp(self._path)
        if found is not None and found == self._stamp:
            return
        self._tokens, self._stamp = read_tokens(self._path), found
        if plain := sorted({token.name for token in self._tokens if token.is_plain}):
            log.warning(
                "%s has the tokens of %s as they are, for whoever gets hold of the file; "
                "`laser-vfl tokens add` and `revoke` put hashes in their place, and these tokens "
                "stay good",
                self._path,
                ", ".join(plain),
            )
