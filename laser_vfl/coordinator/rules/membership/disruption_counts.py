"""Counts how often a member's own reports forced everyone to stop, and which pairs were cut."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

MOST_ALARMS = 5
"""A member that stops the others more often than this, unasked, is excluded."""


class DisruptionCounts:
    """Counts of stops and of cut pairs, for each member, since the run began."""

    def __init__(self) -> None:
        self._alarms: Counter[str] = Counter()
        self._cuts: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        """How often each member was the one of a pair that was excluded."""
        self._seen: set[frozenset[str]] = set()
        """Groups that were stuck before, and were allowed to repeat the step."""

    def alarm(self, client: str) -> str:
        """Count a stop that a member caused; return why it is excluded for it, or an empty text."""
        self._alarms[client] += 1
        if self._alarms[client] <= MOST_ALARMS:
            return ""
        return f"it has stopped the others {self._alarms[client]} times"

    def cut(self, lost: str, *others: str, is_evident: bool = False) -> None:
        """Count that one member of a group that cannot go on together was excluded.

        The next time another member of the group is excluded. That is not so if it is evident from
        the waits of other members which one is at fault.
        """
        self._cuts.update((lost, *others))
        if not is_evident:
            self._losses[lost] += 1

    def is_repeated(self, stuck: frozenset[str]) -> bool:
        """Take note of a group that is stuck; return whether the same group was stuck before."""
        is_known = stuck in self._seen
        self._seen.add(stuck)
        return is_known

    def in_order(self, names: Iterable[str], waited_for: Mapping[str, int]) -> list[str]:
        """Return the members, in the order in which they should be kept.

        Members that were in fewer cut pairs come first. Among equals, those that were excluded more
        often come first, so that the two of a pair take turns. Then come those that fewer members
        wait for. The order of `names` decides between the rest.
        """

        def rank(name: str) -> tuple[int, int, int]:
            return self._cuts[name], -self._losses[name], waited_for.get(name, 0)

        return sorted(names, key=rank)

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk."""
        return {
            "alarms": dict(self._alarms),
            "cuts": dict(self._cuts),
            "losses": dict(self._losses),
            "seen": sorted(sorted(stuck) for stuck in self._seen),
        }

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Self:
        """Return what a snapshot was taken of."""
        restored = cls()
        restored._alarms = Counter(stored["alarms"])
        restored._cuts = Counter(stored["cuts"])
        restored._losses = Counter(stored.get("losses", {}))  # 0.1.0 did not write these two
        restored._seen = {frozenset(stuck) for stuck in stored.get("seen", ())}
        return restored
