"""What a member has cost the others in one run by its word alone; nobody does so without end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

MOST_ALARMS = 5
"""Who stops the others more often than this, without being asked to, goes itself."""


class Unrest:
    """Who stopped everybody, and who could not reach whom, so far."""

    def __init__(self) -> None:
        self._alarms: Counter[str] = Counter()
        self._cuts: Counter[str] = Counter()

    def alarm(self, client: str) -> str:
        """Somebody has everybody stop; return why it has to go for that, if it does."""
        self._alarms[client] += 1
        if self._alarms[client] <= MOST_ALARMS:
            return ""
        return f"it has stopped the others {self._alarms[client]} times"

    def cut(self, one: str, other: str) -> None:
        """One of two was left out because they cannot reach each other."""
        self._cuts.update((one, other))

    def in_order(self, names: Sequence[str]) -> list[str]:
        """Return those first who had the least to do with such pairs; else as they came."""
        return sorted(names, key=lambda name: self._cuts[name])

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk."""
        return {"alarms": dict(self._alarms), "cuts": dict(self._cuts)}

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Self:
        """Return what a snapshot was taken of."""
        restored = cls()
        restored._alarms = Counter(stored["alarms"])
        restored._cuts = Counter(stored["cuts"])
        return restored
