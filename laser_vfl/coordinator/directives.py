"""What clients tell the coordinator of themselves, and what it tells them to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from laser_vfl.core.purpose import Purpose


class State(Enum):
    """What a client says it is doing."""

    JOINING = "joining"
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class Link:
    """A client's stream to another process: whether it is up, and for how long it has been so."""

    up: bool
    for_s: float = 0.0
    offences: int = 0
    """How often the process at the other end broke the contract, as the client says."""


@dataclass(frozen=True)
class Report:
    """All that a client says of itself with every heartbeat."""

    state: State = State.JOINING
    run: str = ""
    """The run that it is in, or could come back to."""
    stopped: int = 0
    """It never runs a generation up to this one again, and its `next_step` is fixed until then."""
    next_step: int = 0
    num_steps: int = 0
    waiting_for: tuple[str, ...] = ()
    """Whose frames it waits for; empty while it computes."""
    phase_s: float = 0.0
    """How long it has waited, or computed."""
    links: Mapping[int, Link] = field(default_factory=dict)
    """Its streams, by the incarnation at the other end."""
    checkpoints: tuple[int, ...] = ()
    leaving: bool = False
    model_run: str = ""
    """The run of the model that it serves."""
    prepared: bool = False
    """Whether it has read its tables."""
    num_newcomers: int = 0
    """How many people it could serve but cannot name to its peers yet."""
    naming: str = ""
    """The alignment by which it names people."""
    num_redone: int = 0
    """Steps of this run that it had begun and did again with other members."""
    num_dropped: int = 0
    """Frames of peers that it dropped in this run."""
    num_offences: int = 0
    """How often peers broke the contract with it in this run."""


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
class RefusedDryRun:
    """A dry run that came to nothing, for those who wait for it and may not have seen its call."""

    number: int
    reason: str


@dataclass(frozen=True)
class Gathering:
    """Directive: not training yet. `run` is set once this client is aligned for it.

    When a run is `wanted` every client prepares its tables; otherwise it may stay idle.
    """

    run: str
    waiting_for: tuple[str, ...]
    wanted: bool
    call: Call | None = None
    refused: RefusedDryRun | None = None


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
    """Who trains together. Only ever replaced by one of a higher generation."""

    run: str
    generation: int
    members: tuple[ViewMember, ...]
    seed: int
    heads: tuple[str, ...]
    """Who has labels, of all who were aligned for the run."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The members' names, in roster order."""
        return tuple(member.client for member in self.members)

    def has(self, client: str, incarnation: int) -> bool:
        """Whether this process is a member."""
        return any((m.client, m.incarnation) == (client, incarnation) for m in self.members)


@dataclass(frozen=True)
class Training:
    """Directive: a run is under way. Members train by its view; others of the run may join."""

    view: View
    stop: int = 0
    """Never run a generation up to this one again."""
    joiners: tuple[RingMember, ...] = ()
    """Who will be a member once it and all members reach each other."""
    complete: int = 0
    """The highest step whose checkpoint everybody has; older ones may go."""
    resume: int | None = None
    """Who joins loads its best checkpoint up to this step; None: it has to wait for the word."""
    waiting_for: tuple[str, ...] = ()
    """Without whom training does not go on."""
    left_out: str = ""
    """Why this process is not a member any more."""


@dataclass(frozen=True)
class Stopped:
    """Directive: the run is over before its end."""

    run: str
    reason: str


@dataclass(frozen=True)
class Finished:
    """Directive: everybody has finished; nobody needs you any more."""

    run: str


Directive = Gathering | Training | Stopped | Finished
