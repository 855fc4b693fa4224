"""How many alignments this client has taken part in lately, and whether it will in another.

Each alignment lets every member test whom the others hold, by as many ids as it brings. The limit
bounds how often; it outlives the process, because a restart must not lift it.

One that came to nothing because another member failed is given back. As that member may have
learnt its part before it failed, no more are given back in a day than are allowed in a day.
"""

import json
import logging
import math
import time
from contextlib import suppress
from pathlib import Path

from laser_vfl.atomic_files import replace_file
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import LimitExceeded, StateUnwritable, TrainingStopped
from laser_vfl.private_files import FILE_MODE

log = logging.getLogger(__name__)

DAY_S = 86_400.0


class AlignmentLedger:
    """The times of past alignments, in a file."""

    def __init__(self, path: Path, per_day: int) -> None:
        self._path = path
        self._per_day = per_day
        self._times = self._read()

    def check(self, purpose: AlignmentPurpose = AlignmentPurpose.RUN) -> None:
        """Raise unless one more alignment is allowed now; a quarter of them is kept for runs."""
        recent = self._recent()
        most = self._per_day
        if purpose is not AlignmentPurpose.RUN:
            most -= self._per_day // 4
        if len(recent) < most:
            return
        wait_s = recent[-most] + DAY_S - time.time()
        raise LimitExceeded(
            f"this client took part in {len(recent)} alignments within a day, the most it allows",
            hint=f"the next one is possible in {wait_s / 60:.0f} min; or raise alignments_per_day",
            retry_after_s=max(wait_s, 1.0),
        )

    def note(self, purpose: AlignmentPurpose = AlignmentPurpose.RUN) -> None:
        """Count an alignment that is about to happen. If it cannot be counted, it must not."""
        self.check(purpose)
        self._write([*self._returned(), *self._recent(), time.time()])

    def _write(self, times: list[float]) -> None:
        self._times = sorted(times)
        try:
            replace_file(self._path, json.dumps(self._times).encode(), mode=FILE_MODE)
        except OSError as error:
            raise StateUnwritable(
                f"{self._path.name} cannot be written ({error.strerror})",
                where=str(self._path.parent),
                hint="an alignment that is not counted does not take place; free some space",
            ) from None

    def give_back(self) -> None:
        """Do not count the last alignment: it came to nothing, and this client is not to blame.

        What was given back stays in the file as a negative time, which no release counts.
        """
        recent, returned = self._recent(), self._returned()
        if not recent or len(returned) >= self._per_day:
            return
        try:
            self._write([-recent[-1], *returned, *recent[:-1]])
        except TrainingStopped as error:
            log.warning("an alignment that came to nothing is counted: %s", error)

    def may_align_ids(self) -> bool:
        """Tell whether to ask for an alignment of unaligned ids: half of the day's are for runs."""
        recent = self._recent()
        if len(recent) < self._per_day / 2:
            return True
        pause_s = 2 * DAY_S / self._per_day
        return len(recent) < self._per_day and time.time() > recent[-1] + pause_s

    def _recent(self) -> list[float]:
        now = time.time()
        return [moment for moment in self._times if now - DAY_S < moment <= now]

    def _returned(self) -> list[float]:
        now = time.time()
        return [moment for moment in self._times if now - DAY_S < -moment <= now]

    def _read(self) -> list[float]:
        """Return the times in the file. One that cannot be read counts as a day's alignments.

        Otherwise damage to the file would lift the limit.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError:
            text = b""
        with suppress(ValueError, TypeError, OverflowError, RecursionError):
            times = [float(moment) for moment in json.loads(text)]
            if all(map(math.isfinite, times)):
                return sorted(times)
        log.error(
            "%s cannot be read: no alignment until a day after it was written; "
            "remove it to count anew",
            self._path,
        )
        now = time.time()
        with suppress(OSError):
            now = min(now, self._path.stat().st_mtime)
        return [now] * self._per_day
