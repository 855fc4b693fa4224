"""Detects members that have become much slower than they were, and hold up the others.

A step within the deadline is no reason to exclude a member, nor is a slow machine: each member is
compared with itself at its best. What counts is how long others wait for it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_high

from laser_vfl.coordinator.rules.membership.failure_detector import Members
from laser_vfl.coordinator.rules.membership.wait_chains import WaitGraph
from laser_vfl.coordinator.rules.policies import MembershipPolicy

BLOCK_STEPS = 50
BLOCK_S = 30.0
"""The shortest stretch of a run that says how fast a member is."""

LEAST_STEP_S = 0.1
"""A member that takes no longer than this for a step is as fast as can be seen in heartbeats."""


@dataclass
class Stretch:
    """Some steps of one member, in one part of the run."""

    since: float
    first_step: int
    is_evaluating: bool
    busy_s: float = 0.0
    """How long it has waited for nobody."""
    held_s: float = 0.0
    """How long others have waited for it meanwhile."""


@dataclass
class Pace:
    """How fast one member is, and was at its best."""

    stretch: Stretch | None = None
    best_s: dict[bool, float] = field(default_factory=dict)
    """The shortest time of a step, over a whole stretch of training, or of evaluation."""
    why: str = ""
    """Why it is too slow, if it is."""


class Paces:
    """The paces of all members during a run; an exclusion does not reset them."""

    def __init__(self, policy: MembershipPolicy) -> None:
        self._policy = policy
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._heard_at: float | None = None
        self._busy: set[str] = set()
        self._holding: set[str] = set()

    def hear(
        self, members: Members, graph: WaitGraph, ends: Sequence[frozenset[str]], now: float
    ) -> None:
        """Take in how far each member is; `ends` is where the waits of this moment end."""
        passed_s = 0.0 if self._heard_at is None else max(0.0, now - self._heard_at)
        self._heard_at = now
        num_steps = median_high([m.report.num_steps for m in members.values()] or [0])
        for name, member in members.items():
            pace, step = self._paces[name], member.furthest
            is_evaluating = 0 < num_steps <= step
            stretch = pace.stretch
            if stretch is None or stretch.is_evaluating != is_evaluating:
                pace.stretch = Stretch(now, step, is_evaluating)
                continue
            stretch.busy_s += passed_s * (name in self._busy)
            stretch.held_s += passed_s * (name in self._holding)
            self._judge(pace, stretch, step, now)
        self._busy = {name for name in members if not graph.waits[name]}
        self._holding = set()
        for end in ends:
            # In a circle a member lies, or a frame was lost: take the one most waited for.
            most = max(graph.num_waiting_for(name) for name in end)
            self._holding |= {name for name in end if graph.num_waiting_for(name) == most}

    def too_slow(self) -> dict[str, str]:
        """Return the members that became slow and hold up the others, with the reasons."""
        return {name: pace.why for name, pace in self._paces.items() if pace.why}

    def changed(self) -> None:
        """Forget the stretches under way, as all members begin their step anew."""
        for pace in self._paces.values():
            pace.stretch, pace.why = None, ""
        self._heard_at = None
        self._busy, self._holding = set(), set()

    def _judge(self, pace: Pace, stretch: Stretch, step: int, now: float) -> None:
        policy, num_steps = self._policy, step - stretch.first_step
        best_s = pace.best_s.get(stretch.is_evaluating)
        step_s = stretch.held_s / max(num_steps, 1)
        is_long = stretch.held_s >= policy.stuck_s
        if best_s is not None and is_long:
            usual_s = max(best_s, LEAST_STEP_S)
            if step_s >= policy.max_slowdown * usual_s:
                pace.why = (
                    f"the others wait {step_s:.3g} s for each of its steps, which took "
                    f"{usual_s:.2g} s at its best"
                )
        if num_steps >= BLOCK_STEPS and now - stretch.since >= BLOCK_S:
            taken_s = max(stretch.busy_s, stretch.held_s) / num_steps
            pace.best_s[stretch.is_evaluating] = taken_s if best_s is None else min(taken_s, best_s)
            pace.stretch = Stretch(now, step, stretch.is_evaluating)
