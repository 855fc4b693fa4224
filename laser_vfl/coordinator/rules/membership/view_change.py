"""A change of members that is under way, and the departures that changes led to."""

from dataclasses import dataclass, field
from enum import Enum

from laser_vfl.coordinator.rules.membership.failure_detector import Pair
from laser_vfl.coordinator.rules.membership.offences import Accusation


class DepartureKind(Enum):
    """How a member came to go."""

    LEFT = "left"
    """By itself, after it had stopped. Afterwards no policy waits for it."""
    LOST = "lost"
    """It was excluded, or its process is gone."""


@dataclass(frozen=True)
class Loss:
    """Why a member is not in the next view. The reason may be the client's own text."""

    reason: str
    kind: DepartureKind = DepartureKind.LOST


LEFT = Loss("it left", DepartureKind.LEFT)


@dataclass(frozen=True)
class Departure:
    """A member that left a run or was excluded: when, and why."""

    client: str
    generation: int
    """The first generation without it."""
    reason: str
    at: float
    kind: DepartureKind = DepartureKind.LOST


@dataclass
class Change:
    """A change of members under way."""

    begun_at: float
    cause: str
    suspects: set[str]
    cuts: set[Pair]
    accused: set[Accusation]
    joiners: set[str] = field(default_factory=set)
    """The clients that could be admitted when the change began."""
    waited_for: dict[str, int] = field(default_factory=dict)
    """How many members reported that they wait for each member."""
    overdue: frozenset[str] = frozenset()
    """The members that have held up the others for too long."""
    expelled: dict[str, str] = field(default_factory=dict)
    """The members that are excluded even if they answer, each with the reason."""
    lost: dict[str, Loss] = field(default_factory=dict)
    """The members that left or did not answer the stop."""
    leaving: set[str] = field(default_factory=set)
    """The members that have said during it that they leave; none may take that back."""
    kept_waiting_s: dict[str, float] = field(default_factory=dict)
    """How long each member took to stop, or until it was given up."""

    def rest(self, now: float) -> None:
        """Start its timeout afresh."""
        self.begun_at = now
