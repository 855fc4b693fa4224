"""How many ids each application has had aligned within a day, by sending features of them.

Each such id tells who asked which other clients hold it. The file outlives the process, because a
restart must not lift the limit. It has the names of applications and numbers, and no id.
"""

import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from laser_vfl.atomic_files import replace_file

log = logging.getLogger(__name__)

DAY_S = 86_400.0
MINUTE_S = 60.0
"""Ids of one minute are counted together, so that the file stays short."""

FILE_NAME = "requested-ids.json"


class AlignmentQuota:
    """The ids of the last 24 hours, by the application that asked. Not for several threads."""

    def __init__(self, path: Path, per_day: int, clock: Callable[[], float] = time.time) -> None:
        self.per_day = per_day
        self._path = path
        self._clock = clock
        self._barred_until = 0.0
        """Until when nobody has anything left, because the file could not be read."""
        self._by_caller = self._read()

    def left(self, caller: str) -> int:
        """Return how many ids an application may have aligned now."""
        now = self._clock()
        if now < self._barred_until:
            return 0
        return max(0, self.per_day - sum(self._recent(caller, now).values()))

    def take(self, caller: str, num: int) -> bool:
        """Count ids that are about to be remembered. What cannot be counted must not be aligned."""
        now = self._clock()
        minute = math.floor(now / MINUTE_S)
        counts = self._recent(caller, now)
        kept = {other: recent for other in self._by_caller if (recent := self._recent(other, now))}
        after = {**kept, caller: {**counts, minute: counts.get(minute, 0) + num}}
        try:
            replace_file(self._path, json.dumps(after).encode(), mode=0o600)
        except OSError as error:
            log.error("%s cannot be written (%s): no id is aligned", self._path, error.strerror)
            return False
        self._by_caller = after
        return True

    def _recent(self, caller: str, now: float) -> dict[int, int]:
        """Return the counts of the last day; those of a clock that was set back since, too."""
        first, last = (math.floor((now + way * DAY_S) / MINUTE_S) for way in (-1, 1))
        counts = self._by_caller.get(caller, {})
        return {minute: num for minute, num in counts.items() if first <= minute <= last}

    def _read(self) -> dict[str, dict[int, int]]:
        """Return what is in the file. One that cannot be read leaves nothing to anybody for a day.

        Otherwise damage to the file would lift the limit.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError:
            text = b""
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            return {
                str(caller): {int(minute): _checked(num) for minute, num in counts.items()}
                for caller, counts in json.loads(text).items()
            }
        log.error(
            "%s cannot be read: no id of a request is aligned until a day after it was written; "
            "remove it to count anew",
            self._path,
        )
        written_at = self._clock()
        with suppress(OSError):
            written_at = min(written_at, self._path.stat().st_mtime)
        self._barred_until = written_at + DAY_S
        return {}


def _checked(num: object) -> int:
    if not isinstance(num, int) or num < 0:
        raise ValueError("a count is a whole number")
    return num
