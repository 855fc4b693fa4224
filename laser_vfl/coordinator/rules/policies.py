"""How long the coordinator waits, and how many members a run needs."""

import math
from dataclasses import dataclass
from typing import Literal

from laser_vfl.transport.protocol import MAX_POINTS, MAX_TOTAL_PEOPLE

MOST_PHASES = 5
"""A step has fewer phases; in each, a member may compute up to the deadline."""


@dataclass(frozen=True)
class MembershipPolicy:
    """When a run goes on without a member, and when that member may return.

    The operator sets the fields of the first group. The others are the same everywhere; fault
    tests shorten them (`laser_vfl/config/test_policy.py`).
    """

    quorum: int = 1
    """The fewest members to go on."""
    on_lost: Literal["continue", "wait"] = "continue"
    heartbeat_timeout_s: float = 10.0
    step_timeout_s: float = 60.0
    pipeline: int = 0
    """How many steps a member may begin before it has done the oldest one."""
    restart_grace_s: float = 60.0
    max_slowdown: float = 20.0
    """A member may become so many times slower than at its best while others wait for it."""

    ready_s: float = 600.0
    """How long clients that were aligned for a run may take to get ready for its first step."""
    away_s: float = 1.0
    """A member is gone after so long without a session, if some member has no stream to it."""
    silent_s: float = 3.0
    """A member is gone after so long without a heartbeat, if another member suspects it."""
    stranded_s: float = 2.0
    """How long a contradiction between reports has to last before all repeat the step.

    Reports are not of the same moment, which explains a shorter one.
    """
    cut_s: float = 10.0
    """Two members cannot reach each other if they have had no stream for so long."""
    return_s: float = 5.0
    """How long clients have to come back after a restart or a pause of the coordinator."""
    own_pause_s: float = 2.0
    """After a pause of its own that is this long, the coordinator starts all timeouts afresh."""
    first_rejoin_s: float = 0.5
    longest_rejoin_s: float = 60.0
    """How long a client waits before it may join again; each exclusion doubles it."""
    longest_slow_rejoin_s: float = 3600.0
    """The longest wait of a client that was left out again and again for holding up the others."""
    free_visits: int = 3
    visits_within_s: float = 3600.0
    """A client may leave and return this often in this time; then it waits as if excluded."""

    @property
    def stuck_s(self) -> float:
        """How long a member may take from one step that it has done to the next."""
        return (MOST_PHASES + self.pipeline) * self.step_timeout_s

    @property
    def begun_cut_s(self) -> float:
        """How long a stream may be down between two members that have begun to train."""
        return min(self.cut_s, self.step_timeout_s)

    @property
    def first_cut_s(self) -> float:
        """How long a stream may be down to a member that still builds its models."""
        return max(self.cut_s, self.step_timeout_s)


@dataclass(frozen=True)
class AlignmentPolicy:
    """How long an alignment may take, and how many people a client may bring to it."""

    timeout_s: float = math.inf
    max_people: int = MAX_POINTS
    """The longest list that is taken; each is held in memory."""
    max_total_people: int = MAX_TOTAL_PEOPLE
    """The most people in all lists of an alignment together."""

    after_refusal_s: float = 60.0
    """How long an alignment of unaligned ids waits after one was refused."""
    yield_s: float = 60.0
    """How long a run that could start waits for an alignment that is for something else."""
    first_recall_s: float = 10.0
    longest_recall_s: float = 1800.0
    """How long a client is not called to a run after one that failed because of it; this doubles.

    A run that an operator requests calls all clients at once.
    """
    result_s: float = 60.0
    """How long the outcome of an alignment without a run is kept for clients that fetch it late."""
    most_failed: int = 30
    failed_within_s: float = 60.0
    """A client gets no further dry run after so many that failed within this time.

    Each makes all others begin to blind their tables, and no ledger counts those that fail.
    """
