"""Detects members that are gone, slow or cut off, from the reports of all members."""

from collections.abc import Mapping, Sequence, Set
from itertools import combinations

from laser_vfl.coordinator.rules.directives import State
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import Registration

MOST_TORN = 14

BEGUN = (State.RUNNING, State.FINISHED)

Members = Mapping[str, Registration]
"""Members of the view that are still the processes they were, in roster order."""

Pair = frozenset[str]


def suspects(members: Members, policy: MembershipPolicy) -> set[str]:
    """Return the members that some member has no stream to, or has waited for past the deadline."""
    found = set()
    for name, member in members.items():
        for other, registration in members.items():
            if other == name:
                continue
            link = member.report.links.get(registration.incarnation)
            waits = other in member.report.waiting_for
            is_late = waits and member.report.phase_s >= policy.step_timeout_s
            if (link is not None and not link.up) or is_late:
                found.add(other)
    return found


def is_gone(member: Registration, policy: MembershipPolicy, now: float, *, suspected: bool) -> str:
    """Return why a member counts as gone; empty if it does not."""
    if not member.in_session:
        away_s = now - member.left_at
        if away_s >= (policy.away_s if suspected else policy.heartbeat_timeout_s):
            return "its connection was cut"
        return ""
    silent_s = now - member.seen_at
    if silent_s >= (policy.silent_s if suspected else policy.heartbeat_timeout_s):
        return f"it was silent for {silent_s:.0f} s"
    return ""


def is_slow(member: Registration, policy: MembershipPolicy) -> str:
    """Return why a member is too slow by its own report; empty if it is not."""
    at_s = member.report.phase_s
    is_late = member.is_computing and at_s >= policy.step_timeout_s
    return f"it has been at one step for {at_s:.0f} s" if is_late else ""


def is_stuck(member: Registration, policy: MembershipPolicy, now: float) -> str:
    """Return why a member that others wait for is too slow by the coordinator's clock.

    A member cannot put this off by reporting again and again that it has just begun a step.
    """
    still_s = now - member.moved_at
    is_late = member.is_computing and still_s >= policy.stuck_s
    return f"it has been at one step for {still_s:.0f} s" if is_late else ""


def cut_pairs(members: Members, policy: MembershipPolicy) -> set[Pair]:
    """Return the pairs that have no stream to each other though the coordinator hears both."""
    return {
        frozenset(pair)
        for pair in combinations(members, 2)
        if _are_cut(members[pair[0]], members[pair[1]], policy)
    }


def _are_cut(a: Registration, b: Registration, policy: MembershipPolicy) -> bool:
    if not (a.in_session and b.in_session):
        return False
    links = [a.report.links.get(b.incarnation), b.report.links.get(a.incarnation)]
    down_s = [link.for_s for link in links if link and not link.up]
    have_begun = all(member.report.state in BEGUN for member in (a, b))
    return bool(down_s) and min(down_s) >= (
        policy.begun_cut_s if have_begun else policy.first_cut_s
    )


def mutual_pairs(members: Members, policy: MembershipPolicy) -> set[Pair]:
    """Return the pairs in which both report a wait for the other past the deadline."""
    return {
        frozenset((name, other))
        for name, member in members.items()
        for other in _waits_late(member, policy)
        if other in members and name in _waits_late(members[other], policy)
    }


def _waits_late(member: Registration, policy: MembershipPolicy) -> tuple[str, ...]:
    report = member.report
    is_late = report.phase_s >= policy.step_timeout_s and member.in_session and not report.stopped
    return tuple(n for n in report.waiting_for if n != member.client) if is_late else ()


def without_cuts(names: Sequence[str], cuts: Set[Pair]) -> list[str]:
    """Return the largest set of members without a cut pair; of several, the first in order."""
    left, names = set(cuts), list(names)
    while True:
        torn = [name for name in names if any(name in pair for pair in left)]
        if len(torn) <= MOST_TORN:
            break
        # Too many to try all sets: drop the member that is cut off from the most others.
        most = max(reversed(torn), key=lambda name: sum(name in pair for pair in left))
        left = {pair for pair in left if most not in pair}
        names.remove(most)
    for size in range(len(torn), -1, -1):
        for kept in combinations(torn, size):
            if not any(pair.issubset(kept) for pair in left):
                return [name for name in names if name not in torn or name in kept]
    return names
