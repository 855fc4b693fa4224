"""Counts of what happens too often for a line each: one sum for each kind and minute."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MINUTE_S = 60.0

MAX_KINDS = 100
"""So many kinds of an event are told apart in a minute: whoever calls may make up new ones."""

OTHERS = "others"

Labels = Mapping[str, str]


@dataclass
class Tally:
    """What has come together of one kind of event since its first."""

    event: str
    labels: dict[str, str]
    since: float
    numbers: dict[str, int]
    num_told: int = 0
    """How many had a line each, and are not in the sum."""


class Tallies:
    """Sums by event and labels. Time is told by whoever calls."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, tuple[str, ...]], Tally] = {}

    def fold(self, event: str, labels: Labels) -> dict[str, str]:
        """Return the labels to count under: those of the others when there are too many kinds."""
        if _key(event, labels) in self._open:
            return dict(labels)
        num_kinds = sum(tally.event == event for tally in self._open.values())
        if num_kinds < MAX_KINDS:
            return dict(labels)
        return dict.fromkeys(labels, OTHERS)

    def add(self, event: str, labels: Labels, numbers: Mapping[str, int], now: float) -> None:
        """Add numbers to the sums of an event."""
        key = _key(event, labels)
        tally = self._open.get(key)
        if tally is None:
            tally = Tally(event, dict(labels), now, dict.fromkeys(numbers, 0))
            self._open[key] = tally
        for name, number in numbers.items():
            tally.numbers[name] += number

    def is_told(self, event: str, labels: Labels, most: int, now: float) -> bool:
        """Tell whether this one has a line of its own, as so many in a minute do; or count it."""
        self.add(event, labels, {"count": 0}, now)
        tally = self._open[_key(event, labels)]
        if tally.num_told < most:
            tally.num_told += 1
            return True
        tally.numbers["count"] += 1
        return False

    def take_due(self, now: float) -> list[Tally]:
        """Return the sums of a minute that is over, or that a clock set back has not seen."""
        return self._take([t for t in self._open.values() if not 0 <= now - t.since < MINUTE_S])

    def take_all(self) -> list[Tally]:
        """Return all sums."""
        return self._take(list(self._open.values()))

    def _take(self, tallies: Iterable[Tally]) -> list[Tally]:
        return [self._open.pop(_key(tally.event, tally.labels)) for tally in tallies]


def _key(event: str, labels: Labels) -> tuple[str, tuple[str, ...]]:
    return event, tuple(labels.values())
