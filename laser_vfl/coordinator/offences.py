"""Who is said to have broken the contract in a run, by whom, and who goes because of it.

Only the two ends of a stream know what crossed it, so there is nothing to go by but their word.
"""

from collections import Counter
from collections.abc import Mapping, Set
from itertools import permutations
from typing import Any, Self

from laser_vfl.coordinator.suspicion import Members, Pair

MOST_EXCLUSIONS = 3
"""Who was left out so often for an offence does not come back to the run."""

MOST_ALONE = 1
"""Who accuses more members than this that nobody else accuses is not believed."""

Accusation = tuple[str, str]
"""Who accuses whom."""


def accusations(members: Members) -> set[Accusation]:
    """Return who says of whom that it broke the contract."""
    return {
        (name, other)
        for (name, member), (other, accused) in permutations(members.items(), 2)
        if (link := member.report.links.get(accused.incarnation)) and link.offences
    }


class Offences:
    """What was decided in one run so far."""

    def __init__(self) -> None:
        self._exclusions: Counter[str] = Counter()
        self._accusers: dict[str, set[str]] = {}
        """On whose word each was left out."""
        self.barred: dict[str, str] = {}
        """Who may not come back, and why."""

    def judge(self, cuts: Set[Pair], accused: Set[Accusation]) -> dict[str, str]:
        """Return who of members that cannot reach each other has to go, and why.

        That is whom one side of a pair accuses, while the other side does not accuse it; but who
        accuses two or more, in the course of the run, that nobody else ever has, goes itself.
        An accusation by somebody who is accused counts for nothing.
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
        """Take note that somebody was left out for this reason; return it, with what follows."""
        self._exclusions[client] += 1
        self._accusers |= {
            name: by for name, by in self._all_accusers(accused).items() if name == client
        }
        if self._exclusions[client] >= MOST_EXCLUSIONS:
            why += f"; that was the {MOST_EXCLUSIONS}rd time, and it is barred from this run"
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
        """Return who has accused each, now or when it was left out before."""
        found = {name: set(by) for name, by in self._accusers.items()}
        for name, other in accused:
            found.setdefault(other, set()).add(name)
        return found
