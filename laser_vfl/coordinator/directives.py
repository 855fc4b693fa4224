"""What clients tell the coordinator of themselves, and what it tells them to do."""

from dataclasses import dataclass
from enum import Enum

from laser_vfl.core.purpose import Purpose


class State(Enum):
    """What a client says it is doing."""

    JOINING = "joining"
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class StartRule:
    """Start with all clients, or `after_s` seconds after at least `quorum` are there."""

    quorum: int
    after_s: float


@dataclass(frozen=True)
class RingMember:
    """A client that takes part in an alignment."""

    client: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class Commitment:
    """How many points a client's list has, and their SHA-256 under its own scalar alone."""

    client: str
    table: str
    num_points: int
    sha256: bytes


@dataclass(frozen=True)
class Call:
    """A call to an alignment. Commitments are told when all are there; then lists may travel."""

    id: str
    purpose: Purpose
    run: str
    members: tuple[RingMember, ...]
    number: int
    commitments: tuple[Commitment, ...] = ()


@dataclass(frozen=True)
class Gathering:
    """Directive: not training yet. `run` is set once this client is aligned for it.

    When a run is `wanted` every client prepares its tables; otherwise it may stay idle.
    """

    run: str
    waiting_for: tuple[str, ...]
    wanted: bool
    call: Call | None = None


@dataclass(frozen=True)
class ViewMember:
    """A client as the others need to know it."""

    client: str
    incarnation: int
    address: str
    next_step: int
    has_head: bool


@dataclass(frozen=True)
class View:
    """Directive: train, with these members."""

    run: str
    generation: int
    members: tuple[ViewMember, ...]
    seed: int


@dataclass(frozen=True)
class Stopped:
    """Directive: the run is over before its end."""

    run: str
    reason: str


@dataclass(frozen=True)
class Finished:
    """Directive: everybody has finished; nobody needs you any more."""

    run: str


Directive = Gathering | View | Stopped | Finished
