"""What a client notes of its training, enough to replay a run with failures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Applied:
    """The client applied a step in a generation; `participants` is a mask of the roster."""

    step: int
    generation: int
    participants: int


@dataclass(frozen=True)
class Loaded:
    """The client's state became that of its checkpoint at `step`; 0 is the initial parameters.

    `generation` is the first that has this life of the client as a member. Without it, that is
    taken to be the one in which the client next applied a step.
    """

    step: int
    generation: int | None = None


Entry = Applied | Loaded
