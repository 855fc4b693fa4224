"""Who may become a member of a run under way, and how long somebody who was left out waits."""

from collections import Counter
from collections.abc import Mapping, Sequence

from laser_vfl.coordinator.directives import State, View
from laser_vfl.coordinator.registration import Registration

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
MAX_DOUBLINGS = 10
"""How long a client waits before it may join again; each exclusion doubles it."""

There = Mapping[str, Registration]
"""Everybody who is registered."""


class Joiners:
    """Those at the door."""

    def __init__(self, roster: Sequence[str]) -> None:
        self.exclusions: Counter[str] = Counter()
        self._roster = tuple(roster)
        self._not_before: dict[str, float] = {}

    def candidates(self, view: View, there: There, now: float) -> list[Registration]:
        """Return who is ready to join, in roster order."""
        found = [r for name in self._roster if (r := there.get(name))]
        return [
            r
            for r in found
            if may_come_back(r, view.run)
            and r.report.state is State.READY
            and not view.has(r.client, r.incarnation)
            and now >= self._not_before.get(r.client, 0.0)
        ]

    def admissible(
        self, members: Sequence[Registration], view: View, there: There, now: float
    ) -> list[Registration]:
        """Return who may join: it and all members have streams to each other."""
        admitted: list[Registration] = []
        for joiner in self.candidates(view, there, now):
            others = [m for m in (*members, *admitted) if m.client != joiner.client]
            if all(_are_linked(joiner, other) for other in others):
                admitted.append(joiner)
        return admitted

    def excluded(self, client: str, now: float) -> None:
        """Take note that somebody was left out."""
        doublings = min(self.exclusions[client], MAX_DOUBLINGS)
        wait_s = min(FIRST_WAIT_S * 2**doublings, LONGEST_WAIT_S)
        self._not_before[client] = now + wait_s
        self.exclusions[client] += 1

    def rest(self) -> None:
        """Let everybody try at once; the coordinator itself was away."""
        self._not_before.clear()


def may_come_back(registration: Registration, run: str) -> bool:
    """Whether a client says that it has what it needs for a run."""
    return registration.available and registration.report.run == run


def _are_linked(a: Registration, b: Registration) -> bool:
    links = [a.report.links.get(b.incarnation), b.report.links.get(a.incarnation)]
    return all(link is not None and link.up for link in links)
