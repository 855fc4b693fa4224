"""Measures, by the coordinator's clock, how long each member holds up the others.

Reports say which members wait for which, and how far each is. The durations are measured here, so
that a member gains nothing by reporting that it has just begun, or something else each time.
"""

from collections import defaultdict
from collections.abc import Set

from laser_vfl.coordinator.rules.directives import State, View
from laser_vfl.coordinator.rules.membership.failure_detector import (
    Members,
    Pair,
    is_stuck,
)
from laser_vfl.coordinator.rules.membership.pace import Paces
from laser_vfl.coordinator.rules.membership.wait_chains import WaitGraph
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import Registration

NOBODY = WaitGraph({}, frozenset())


class HoldUps:
    """How long members have held up the others since they last did a step."""

    def __init__(self, policy: MembershipPolicy) -> None:
        self.graph = NOBODY
        self._policy = policy
        self._paces = Paces(policy)
        self._heard_at: float | None = None
        self._steps: dict[str, tuple[int, int]] = {}
        self._alone_s: defaultdict[str, float] = defaultdict(float)
        """How long others have waited for a member that waits for nobody itself."""
        self._in_circle_s: defaultdict[str, float] = defaultdict(float)
        """How long a member has been in a circle of members that wait for each other."""
        self._disputed_s: defaultdict[tuple[str, str], float] = defaultdict(float)
        """How long one member has waited for another that reports that it has done that step."""
        self._ends: list[frozenset[str]] = []
        self._late: set[str] = set()

    def hear(self, members: Members, view: View, now: float) -> None:
        """Take in the reports; the time since the last call counts for what was true then."""
        passed_s = 0.0 if self._heard_at is None else max(0.0, now - self._heard_at)
        self._heard_at = now
        self._count(passed_s, members)
        for name, member in members.items():
            step = (member.incarnation, member.furthest)
            if self._steps.get(name) != step:
                self._steps[name] = step
                self._forget(name)
        self.graph = graph = WaitGraph.of(members, view)
        self._late = {name for name, m in members.items() if self._is_late(m, now)}
        self._ends = graph.ends(self._late)
        waiting = [name for name, others in graph.waits.items() if others]
        self._paces.hear(members, graph, graph.ends(waiting), now)

    def changed(self) -> None:
        """Take in a new view: all begin their step anew.

        How long others have waited for a member still counts until that member has done a step.
        """
        self._in_circle_s.clear()
        self._disputed_s.clear()
        self._ends, self._late = [], set()
        self._paces.changed()

    def rest(self) -> None:
        """Start anew, because the coordinator itself was away."""
        self.changed()
        self._alone_s.clear()
        self._heard_at = None

    def overdue(self, members: Members, suspected: Set[str], now: float) -> dict[str, str]:
        """Return the members that have held up the others for too long, each with the reason."""
        limit_s = self._policy.stuck_s
        found = {
            name: f"the others have waited for it for {seconds:.0f} s"
            for name in members
            if (seconds := self._alone_s[name]) >= limit_s
        }
        for name, member in members.items():
            if name in suspected | self._at_ends() and (why := is_stuck(member, self._policy, now)):
                found[name] = why
            if self._pretends(member, now):
                found[name] = "it says that it waits for somebody who does not take part"
        return found | {n: why for n, why in self._paces.too_slow().items() if n in members}

    def circles(self, members: Members, now: float) -> list[frozenset[str]]:
        """Return the circles of members that have waited for each other past the deadline."""
        policy = self._policy
        return [
            end
            for end in self._ends
            if len(end) > 1
            and all(self._in_circle_s[name] >= policy.stranded_s for name in end)
            and all(now - members[name].moved_at >= policy.step_timeout_s for name in end)
        ]

    def pairs_in(self, circle: frozenset[str]) -> set[Pair]:
        """Return the pairs of a circle that wait for each other directly."""
        waits = self.graph.waits
        return {frozenset((a, b)) for a in circle for b in waits[a] if a in waits[b]}

    def disputes(self) -> list[Pair]:
        """Return the pairs in which one waits for a step that the other says it has done."""
        found = [p for p, s in self._disputed_s.items() if s >= self._policy.stranded_s]
        return [frozenset(pair) for pair in sorted(found)]

    def _at_ends(self) -> set[str]:
        """Return the members that wait for nobody while others wait for them past the deadline."""
        return {name for end in self._ends if len(end) == 1 for name in end}

    def _count(self, passed_s: float, members: Members) -> None:
        """Add the time for which the last reports have been true."""
        if not passed_s:
            return
        now = self._heard_at or 0.0
        for end in self._ends:
            for name in end:
                if len(end) > 1:
                    self._in_circle_s[name] += passed_s
                elif not self.graph.denies(name):
                    self._alone_s[name] += passed_s
        late = set().union(*(self.graph.beyond.get(name, ()) for name in self._late))
        for name, other in self.graph.disputed:
            member = members.get(name)
            is_late = member and now - member.moved_at >= self._policy.step_timeout_s
            if is_late and name in late:
                self._disputed_s[name, other] += passed_s

    def _forget(self, name: str) -> None:
        """Clear the counts of a member that has done a step, or is another process."""
        for counts in (self._alone_s, self._in_circle_s):
            counts.pop(name, None)
        for pair in [pair for pair in self._disputed_s if pair[0] == name]:
            del self._disputed_s[pair]

    def _is_late(self, member: Registration, now: float) -> bool:
        """Whether a member has waited past the deadline, by its own report and by our clock."""
        report, limit_s = member.report, self._policy.step_timeout_s
        says_so = report.state is State.FINISHED or (
            bool(report.waiting_for) and report.phase_s >= limit_s
        )
        return says_so and now - member.moved_at >= limit_s

    def _pretends(self, member: Registration, now: float) -> bool:
        """Whether a member reports a long wait for members that it cannot be waiting for."""
        name, report = member.client, member.report
        is_void = not self.graph.waits.get(name) and not self.graph.denies(name)
        says_so = report.waiting_for and not report.stopped and report.state is not State.FINISHED
        return bool(says_so) and is_void and self._is_late(member, now)
