"""What the coordinator remembers of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from laser_vfl.coordinator.rules.alignment.alignment import Results
from laser_vfl.coordinator.rules.membership.membership import Membership
from laser_vfl.coordinator.rules.policies import MembershipPolicy

FINISHED = "finished"


@dataclass(frozen=True)
class EndedRun:
    """The last run that ended, and how; without an id there was none."""

    id: str = ""
    has_finished: bool = False
    reason: str = ""
    """Why it has stopped, if it has not finished."""

    @property
    def outcome(self) -> str:
        """How it ended, for people."""
        return FINISHED if self.has_finished else self.reason

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk. The release before reads `last` alone."""
        return {"last": [self.id, self.outcome], "last_has_finished": self.has_finished}

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Self:
        """Return what a snapshot holds; in one of the release before, the outcome tells all."""
        id, outcome = stored["last"]
        if stored.get("last_has_finished", outcome == FINISHED):
            return cls(id, has_finished=True)
        return cls(id, reason=outcome)


@dataclass
class Run:
    """One training run: fixed seed, fixed alignment, and members that come and go."""

    id: str
    members: tuple[str, ...]
    """The clients that were aligned for it."""
    seed: int
    alignments: Results
    """What each of them is told; empty once all have it."""
    membership: Membership | None = None
    """Its members, once it has started."""
    waits_since: float | None = None
    """Since when it has waited for clients to get ready, by the clock of this process."""

    @property
    def num_heads(self) -> int | None:
        """How many of its clients have labels; None before it has started."""
        return None if self.membership is None else self.membership.num_heads

    def start(self, membership: Membership) -> None:
        """All clients are ready, so each has its part of the alignment on disk."""
        self.membership, self.alignments = membership, {}

    def rest(self, now: float) -> None:
        """Count all waits afresh."""
        self.waits_since = now
        if self.membership is not None:
            self.membership.rest(now)

    def waits(self, now: float) -> float:
        """Clients are waited for to get ready; return for how long by now."""
        if self.waits_since is None:
            self.waits_since = now
        return now - self.waits_since

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk, but for the alignment."""
        return {
            "id": self.id,
            "members": list(self.members),
            "seed": self.seed,
            "membership": self.membership and self.membership.snapshot(),
        }

    @classmethod
    def restore(
        cls,
        roster: Sequence[str],
        policy: MembershipPolicy,
        stored: Mapping[str, Any],
        results: Results,
    ) -> Self:
        """Return the run that a snapshot was taken of."""
        members = stored["membership"]
        return cls(
            stored["id"],
            tuple(stored["members"]),
            stored["seed"],
            results,
            members and Membership.restore(roster, policy, members),
        )
