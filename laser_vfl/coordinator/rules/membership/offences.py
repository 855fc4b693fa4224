"""Accusations that a member broke the contract, and which members are excluded for them.

Only the two ends of a stream know what crossed it, so the coordinator has only their reports.
"""

from collections import Counter
from collections.abc import Mapping, Set
from itertools import permutations
from typing import Any, Self

from laser_vfl.coordinator.rules.membership.failure_detector import Members, Pair

MOST_EXCLUSIONS = 3
"""A member that was excluded this often for an offence may not return to the run."""

MOST_ALONE = 1
"""A member that accuses more members than this, which nobody else accuses, is not believed."""

Accusation = tuple[str, str]
"""The accuser and the accused."""


def accusations(members: Members) -> set[Accusation]:
    """Return which member reports of which other one that it broke the contract."""
    return {
        (name, other)
        for (name, member), (other, accused) in permutations(members.items(), 2)
        if (link := member.report.links.get(accused.incarnation)) and link.offences
    }


class Offences:
    """Decides on accusations, and remembers the decisions of one run."""

    def __init__(self) -> None:
        self._exclusions: Counter[str] = Counter()
        self._accusers: dict[str, set[str]] = {}
        """The accusers of each member that was excluded."""
        self.barred: dict[str, str] = {}
        """The members that may not return, each with the reason."""

    def judge(self, cuts: Set[Pair], accused: Set[Accusation]) -> dict[str, str]:
        """Return which members of cut pairs are excluded for an offence, each with the reason.

        A member is excluded if the other one of its pair accuses it and it does not accuse that
        one. A member that accuses two or more during the run, which nobody else ever accused, is
        excluded instead. Accusations by a member that is accused itself count for nothing.
        """
        told = {(a, b) for a, b in accused if frozenset((a, b)) in cuts}
        accusers = self._all_accusers(accused)
        found = {}
        for name in sorted({a for a, _ in told}):
            alone = sorted(other for other, by in accusers.items() if by == {name})
            if len(alone) > MOST_ALONE:
                found[name] = f"it alone says that {' and '.join(alone)} broke the contract"
        believed = {(a, b) for a, b in told if (b, a) not in told and a not in found}
        blamed = {b for _, b in believed}
        for name, other in sorted(believed):
            if name not in blamed:
                found.setdefault(other, f"it broke the contract, says {name}")
        return found

    def excluded(self, client: str, why: str, accused: Set[Accusation]) -> str:
        """Take note that a member was excluded; return the reason, with whether it is barred."""
        self._exclusions[client] += 1
        self._accusers |= {
            name: by for name, by in self._all_accusers(accused).items() if name == client
        }
        num_exclusions = self._exclusions[client]
        if num_exclusions >= MOST_EXCLUSIONS:
            why += f"; that was the {ordinal(num_exclusions)} time, and it is barred from this run"
            self.barred[client] = why
        return why

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk."""
        accusers = {name: sorted(by) for name, by in self._accusers.items()}
        return {
            "exclusions": dict(self._exclusions),
            "accusers": accusers,
            "barred": dict(self.barred),
        }

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Self:
        """Return what a snapshot was taken of."""
        restored = cls()
        restored._exclusions = Counter(stored["exclusions"])
        restored._accusers = {name: set(by) for name, by in stored["accusers"].items()}
        restored.barred = dict(stored["barred"])
        return restored

    def _all_accusers(self, accused: Set[Accusation]) -> dict[str, set[str]]:
        """Return the accusers of each member, now or when it was excluded before."""
        found = {name: set(by) for name, by in self._accusers.items()}
        for name, other in accused:
            found.setdefault(other, set()).add(name)
        return found


def ordinal(number: int) -> str:
    """Return a number as one counts in English: 1st, 2nd, 3rd, 4th, 11th, 22nd."""
    if number // 10 % 10 == 1:
        return f"{number}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
