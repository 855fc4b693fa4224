"""What members' reports say about each other: who is gone, who is late, who cannot reach whom."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from laser_vfl.coordinator.directives import State
from laser_vfl.coordinator.registration import Registration

AWAY_S = 1.0
"""Who has no session for so long, and no stream to some member either, is gone."""

SILENT_S = 3.0
"""Who is silent for so long, while others wait for it in vain, is gone."""

MOST_PHASES = 5
"""Nobody whom others wait for takes longer for a step than so many deadlines."""

STRANDED_S = 2.0
"""What is said about frames that nobody has may be a matter of who was heard last, for so long."""

MOST_TORN = 14

CUT_S = 10.0
"""Two members without a stream for so long cannot reach each other."""

BEGUN = (State.RUNNING, State.FINISHED)

Members = Mapping[str, Registration]
"""Members of the view that are still the processes they were, in roster order."""

Pair = frozenset[str]


@dataclass(frozen=True)
class Rules:
    """When a run goes on without a member."""

    quorum: int = 1
    """The fewest members to go on."""
    on_lost: Literal["continue", "wait"] = "continue"
    heartbeat_timeout_s: float = 10.0
    step_timeout_s: float = 60.0
    restart_grace_s: float = 60.0

    @property
    def cut_s(self) -> float:
        """How long a stream may be down between two members that the coordinator hears."""
        return min(CUT_S, self.step_timeout_s)

    @property
    def first_s(self) -> float:
        """How long a stream may be down to a member that has not begun; it builds its models."""
        return max(CUT_S, self.step_timeout_s)


def suspects(members: Members, rules: Rules) -> set[str]:
    """Return whom somebody has no stream to, or waits for past the deadline."""
    found = set()
    for name, member in members.items():
        for other, registration in members.items():
            if other == name:
                continue
            link = member.report.links.get(registration.incarnation)
            waits = other in member.report.waiting_for
            is_late = waits and member.report.phase_s >= rules.step_timeout_s
            if (link is not None and not link.up) or is_late:
                found.add(other)
    return found


def is_gone(member: Registration, rules: Rules, now: float, *, suspected: bool) -> str:
    """Return why a member is to be taken for gone; empty while it is not."""
    if not member.in_session:
        away_s = now - member.left_at
        if away_s >= (AWAY_S if suspected else rules.heartbeat_timeout_s):
            return "its connection was cut"
        return ""
    silent_s = now - member.seen_at
    if silent_s >= (SILENT_S if suspected else rules.heartbeat_timeout_s):
        return f"it was silent for {silent_s:.0f} s"
    return ""


def is_slow(member: Registration, rules: Rules, now: float, *, suspected: bool) -> str:
    """Return why a member holds up the others; empty while it does not.

    Who says that it has just begun, again and again, is not believed for ever.
    """
    if not member.is_computing:
        return ""
    at_s, still_s = member.report.phase_s, now - member.moved_at
    if suspected and still_s >= MOST_PHASES * rules.step_timeout_s:
        at_s = max(at_s, still_s)
    return f"it has been at one step for {at_s:.0f} s" if at_s >= rules.step_timeout_s else ""


def cut_pairs(members: Members, rules: Rules) -> set[Pair]:
    """Return the pairs that cannot reach each other though the coordinator hears both."""
    return {
        frozenset(pair)
        for pair in combinations(members, 2)
        if _are_cut(members[pair[0]], members[pair[1]], rules)
    }


def _are_cut(a: Registration, b: Registration, rules: Rules) -> bool:
    if not (a.in_session and b.in_session):
        return False
    links = [a.report.links.get(b.incarnation), b.report.links.get(a.incarnation)]
    down_s = [link.for_s for link in links if link and not link.up]
    have_begun = all(member.report.state in BEGUN for member in (a, b))
    if down_s and min(down_s) >= (rules.cut_s if have_begun else rules.first_s):
        return True
    return b.client in _waits_late(a, rules) and a.client in _waits_late(b, rules)


def _waits_late(member: Registration, rules: Rules) -> tuple[str, ...]:
    report = member.report
    return report.waiting_for if report.phase_s >= rules.step_timeout_s else ()


def waits_in_vain(members: Members, rules: Rules) -> tuple[str, str]:
    """Return who says so, and why all have to begin anew though nobody is to blame.

    Both are empty if they need not, and the first if all say so.
    """
    for name, member in members.items():
        for other in _waits_late(member, rules):
            peer = members.get(other)
            if peer and peer.report.next_step > member.report.next_step:
                return name, f"{name} waits for {other}, which has done that step"
    busy = [m for m in members.values() if m.report.state is not State.FINISHED]
    if busy and all(_waits_late(member, rules) for member in busy):
        return "", "all wait for each other"
    return "", ""


def without_cuts(names: Sequence[str], cuts: Set[Pair]) -> list[str]:
    """Return the largest set without a cut pair; of several, the one of those who come first."""
    left, names = set(cuts), list(names)
    while True:
        torn = [name for name in names if any(name in pair for pair in left)]
        if len(torn) <= MOST_TORN:
            break
        # Too many to try all sets: drop who is cut off from the most.
        most = max(reversed(torn), key=lambda name: sum(name in pair for pair in left))
        left = {pair for pair in left if most not in pair}
        names.remove(most)
    for size in range(len(torn), -1, -1):
        for kept in combinations(torn, size):
            if not any(pair.issubset(kept) for pair in left):
                return [name for name in names if name not in torn or name in kept]
    return names
