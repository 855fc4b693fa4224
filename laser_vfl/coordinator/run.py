"""What the coordinator remembers of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from laser_vfl.coordinator.alignment import Results
from laser_vfl.coordinator.membership import Membership
from laser_vfl.coordinator.suspicion import Rules


@dataclass
class Run:
    """One training run: fixed seed, fixed alignment, and members that come and go."""

    id: str
    members: tuple[str, ...]
    """Who was aligned for it."""
    seed: int
    alignments: Results
    """What each of them is told; empty once all have it."""
    membership: Membership | None = None
    """Who takes part, once it has started."""

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
        cls, roster: Sequence[str], rules: Rules, stored: Mapping[str, Any], results: Results
    ) -> Self:
        """Return the run that a snapshot was taken of."""
        members = stored["membership"]
        return cls(
            stored["id"],
            tuple(stored["members"]),
            stored["seed"],
            results,
            members and Membership.restore(roster, rules, members),
        )
