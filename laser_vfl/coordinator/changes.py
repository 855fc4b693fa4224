"""What there is to know of a change of members: while it is under way, and of who has gone."""

from dataclasses import dataclass, field

from laser_vfl.coordinator.offences import Accusation
from laser_vfl.coordinator.suspicion import Pair


@dataclass(frozen=True)
class Departure:
    """Who left a run, when it did so, and why."""

    client: str
    generation: int
    """The first without it."""
    reason: str
    at: float


@dataclass
class Change:
    """A change of members under way."""

    begun_at: float
    cause: str
    suspects: set[str]
    cuts: set[Pair]
    accused: set[Accusation]
    expelled: dict[str, str] = field(default_factory=dict)
    """Who has to go even if it answers, and why."""
    lost: dict[str, str] = field(default_factory=dict)
    """Who did not answer the stop, or left, and why it is out."""
