"""How many alignments this client has taken part in lately, and whether it will in another.

Each alignment lets every member test whom the others hold, by as many ids as it brings. The limit
bounds how often; it outlives the process, because a restart must not lift it.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from laser_vfl.core.errors import LimitExceeded, TrainingStopped
from laser_vfl.core.purpose import Purpose

DAY_S = 86_400.0


class Ledger:
    """The times of past alignments, in a file."""

    def __init__(self, path: Path, per_day: int) -> None:
        self._path = path
        self._per_day = per_day
        self._times = self._read()

    def check(self, purpose: Purpose = Purpose.RUN) -> None:
        """Raise unless one more alignment is allowed now; a quarter of them is kept for runs."""
        recent = self._recent()
        most = self._per_day
        if purpose is not Purpose.RUN:
            most -= self._per_day // 4
        if len(recent) < most:
            return
        wait_s = recent[-most] + DAY_S - time.time()
        raise LimitExceeded(
            f"this client took part in {len(recent)} alignments within a day, the most it allows",
            hint=f"the next one is possible in {wait_s / 60:.0f} min; or raise alignments_per_day",
            retry_after_s=max(wait_s, 1.0),
        )

    def note(self, purpose: Purpose = Purpose.RUN) -> None:
        """Count an alignment that is about to happen. If it cannot be counted, it must not."""
        self.check(purpose)
        self._times = [*self._recent(), time.time()]
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            temporary.write_text(json.dumps(self._times))
            temporary.replace(self._path)
        except OSError as error:
            raise TrainingStopped(
                f"{self._path.name} cannot be written ({error.strerror})",
                where=str(self._path.parent),
                hint="an alignment that is not counted does not take place; free some space",
            ) from None

    @property
    def has_time_for_newcomers(self) -> bool:
        """Whether to ask for an alignment of newcomers: half of the day's are kept for runs."""
        recent = self._recent()
        if len(recent) < self._per_day / 2:
            return True
        pause_s = 2 * DAY_S / self._per_day
        return len(recent) < self._per_day and time.time() > recent[-1] + pause_s

    def _recent(self) -> list[float]:
        now = time.time()
        return [moment for moment in self._times if now - DAY_S < moment <= now]

    def _read(self) -> list[float]:
        with suppress(OSError, ValueError, TypeError, RecursionError):
            return sorted(float(moment) for moment in json.loads(self._path.read_text()))
        return []
