"""How far long work outside of training is: an alignment, or reading the tables."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0
SHOWN_AFTER_S = 1.0
"""Work that is done sooner shows no bar and no rate."""

ALIGNING, READING = "alignment", "tables"
"""What the work can be: points that are blinded, or bytes of tables that are read."""

_WORDS = {ALIGNING: ("aligning", "points", 1.0), READING: ("reading tables", "MB", 1e6)}


@dataclass(frozen=True)
class WorkDone:
    """How much of some work is done, of how much, and how many seconds the rest takes."""

    work: str = ""
    done: int = 0
    total: int = 0
    left_s: float = 0.0


class WorkProgress:
    """Tells of work that is under way. On a terminal it has a bar, elsewhere lines in the log."""

    def __init__(self, name: str = "", *, is_terminal: bool | None = None) -> None:
        self._name = name
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._under_way: list[CountedWork] = []

    @property
    def now(self) -> WorkDone:
        """How far the work is that was begun last and is under way; nothing of it without any."""
        under_way = self._under_way[-1:]  # another thread may be at its end
        return under_way[0].now if under_way else WorkDone()

    @contextmanager
    def working(self, work: str, total: int) -> Iterator["CountedWork"]:
        """Some work is done in here; how much it is may turn out later."""
        counted = CountedWork(work, total, self._name if self._is_terminal else None)
        self._under_way.append(counted)
        try:
            yield counted
            counted.finish()
        finally:
            self._under_way.remove(counted)
            counted.close()


class CountedWork:
    """One piece of work, and how much of it is done."""

    def __init__(self, work: str, total: int, name: str | None) -> None:
        """`name` stands before the bar; without one there are lines in the log."""
        self._work, self._name = work, name
        self._words, self._unit, self._size = _WORDS[work]
        self._done, self._total = 0, total
        self._since = self._logged_at = time.monotonic()
        self._bar: Progress | None = None

    @property
    def now(self) -> WorkDone:
        """How far it is."""
        return WorkDone(self._work, self._done, self._total, self._left_s())

    def expect(self, total: int) -> None:
        """There is so much to do in all."""
        self._total = total

    def advance(self, num: int) -> None:
        """So much more is done."""
        self._done += num
        now = time.monotonic()
        if self._name is not None:
            if now - self._since >= SHOWN_AFTER_S:
                self._show(self._name)
        elif now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.info("%s: %s", self._words, self._text())

    def finish(self) -> None:
        """Say how long it took, if that was not short."""
        elapsed_s = time.monotonic() - self._since
        if elapsed_s >= SHOWN_AFTER_S:
            log.info("%s took %s for %s", self._words, duration_text(elapsed_s), self._rate())

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _left_s(self) -> float:
        left = max(self._total - self._done, 0)
        return (time.monotonic() - self._since) * left / self._done if self._done else 0.0

    def _rate(self) -> str:
        rate = self._done / max(time.monotonic() - self._since, 1e-9) / self._size
        return f"{self._done / self._size:,.0f} {self._unit}, {rate:,.0f} a second"

    def _text(self) -> str:
        share = self._done / max(self._total, 1)
        return f"{share:.0%} ({self._rate()}), {duration_text(self._left_s())} left"

    def _show(self, name: str) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn(f"[bold]{name}[/bold] {self._words}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("", total=self._total, note="")
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=self._done, total=self._total, note=self._text())


def duration_text(seconds: float) -> str:
    """Return a duration as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
