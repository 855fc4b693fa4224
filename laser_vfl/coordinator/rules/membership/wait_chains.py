"""The graph of which member waits for which; the members at its ends hold up the rest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from laser_vfl.coordinator.rules.directives import State, View
from laser_vfl.coordinator.rules.membership.failure_detector import Members

Waits = Mapping[str, frozenset[str]]
"""The members that each member waits for."""


@dataclass(frozen=True)
class WaitGraph:
    """The waits that members report and that are possible."""

    waits: Waits
    disputed: frozenset[tuple[str, str]]
    """Waits for a member that reports that it has done the step: a frame was lost, or one of
    the two lies."""

    @classmethod
    def of(cls, members: Members, view: View) -> "WaitGraph":
        """Read it off the reports. A member that has finished waits for all that have not.

        Impossible waits are left out: for oneself, for a client that is no member, and for a
        member that takes part only from a later step on.
        """
        begins = {member.client: member.next_step for member in view.members}
        done = {n for n, m in members.items() if m.report.state is State.FINISHED}
        waits: dict[str, frozenset[str]] = {}
        disputed: set[tuple[str, str]] = set()
        for name, member in members.items():
            report = member.report
            if name in done:
                waits[name] = frozenset(members.keys() - done)
                continue
            # The report of a member that has stopped does not speak of this generation.
            told = () if report.stopped else report.waiting_for
            possible = {n for n in told if n in members and n != name}
            possible = {n for n in possible if begins[n] <= report.next_step}
            denied = {
                n for n in possible if n in done or members[n].report.next_step > report.next_step
            }
            disputed |= {(name, other) for other in denied}
            waits[name] = frozenset(possible - denied)
        return cls(waits, frozenset(disputed))

    @cached_property
    def beyond(self) -> Waits:
        """For each member, itself and all members that it waits for, directly or through others."""
        names = list(self.waits)
        place = {name: i for i, name in enumerate(names)}
        masks = [sum(1 << place[n] for n in {name, *self.waits[name]}) for name in names]
        for k, _ in enumerate(names):
            masks = [mask | masks[k] if mask >> k & 1 else mask for mask in masks]
        return {
            name: frozenset(n for n in names if masks[place[name]] >> place[n] & 1)
            for name in names
        }

    def ends(self, names: Iterable[str]) -> list[frozenset[str]]:
        """Return where the waits of these members end.

        That is a member that waits for nobody, or a circle of members that wait for each other.
        """
        reached = frozenset().union(*(self.beyond[name] for name in names))
        found = {
            self.beyond[name]
            for name in reached
            if all(name in self.beyond[other] for other in self.beyond[name])
        }
        return sorted(found, key=sorted)

    def denies(self, name: str) -> bool:
        """Whether a member waits for one that reports that it has done that step."""
        return any(waiting == name for waiting, _ in self.disputed)

    def num_waiting_for(self, name: str) -> int:
        """Return how many members report that they wait for this one, truly or not."""
        return sum(name in others for others in self.waits.values())
