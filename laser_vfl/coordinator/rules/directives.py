"""Reports of clients to the coordinator, and its directives to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from laser_vfl.core.alignment_purpose import AlignmentPurpose


class State(Enum):
    """What a client says it is doing."""

    JOINING = "joining"
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class LinkReport:
    """A client's stream to another process: whether it is up, and for how long it has been so."""

    up: bool
    for_s: float = 0.0
    offences: int = 0
    """How often the process at the other end broke the contract, as the client says."""


@dataclass(frozen=True)
class WorkReport:
    """Long work of a client outside of training, and how far it is."""

    work: str
    done: int
    total: int
    left_s: float


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
    """The clients whose frames it waits for; empty while it computes."""
    phase_s: float = 0.0
    """How long it has waited, or computed."""
    links: Mapping[int, LinkReport] = field(default_factory=dict)
    """Its streams, by the incarnation at the other end."""
    checkpoints: tuple[int, ...] = ()
    leaving: bool = False
    model_run: str = ""
    """The run of the model that it serves."""
    prepared: bool = False
    """Whether it has read its tables."""
    num_unaligned: int = 0
    """How many people it could serve but cannot name to its peers yet."""
    naming: str = ""
    """The alignment by which it names people."""
    num_redone: int = 0
    """Steps of this run that it had begun and did again with other members."""
    num_dropped: int = 0
    """Frames of peers that it dropped in this run."""
    num_offences: int = 0
    """How often peers broke the contract with it in this run."""
    problem: str = ""
    """Why it cannot take part in a run now, as it says."""
    next_run: str = ""
    """The run of a model that it has and does not serve yet."""
    holds: bool = False
    """Whether it holds that model back itself."""
    work: WorkReport | None = None


@dataclass(frozen=True)
class RingMemberInfo:
    """A client that takes part in an alignment."""

    client: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class Commitment:
    """How many points a client's list has, and their SHA-256 under its own scalar alone."""

    client: str
    num_points: int
    sha256: bytes
    num_known: int = 0
    """How many people it may submit besides, by the points that they had before."""

    @property
    def num_people(self) -> int:
        """The most that it may submit."""
        return self.num_points + self.num_known


@dataclass(frozen=True)
class Call:
    """A call to an alignment. Commitments are told when all are there; then lists may travel."""

    id: str
    purpose: AlignmentPurpose
    run: str
    members: tuple[RingMemberInfo, ...]
    number: int
    commitments: tuple[Commitment, ...] = ()


@dataclass(frozen=True)
class RefusedDryRun:
    """A dry run that failed, for clients that wait for it and may not have seen its call."""

    number: int
    reason: str


class RequestState(Enum):
    """What has become of the run that a client asks for."""

    NONE = "none"
    """It asks for none, or none has to be approved."""
    PENDING = "pending"
    """It waits for the approval of an operator."""
    REJECTED = "rejected"


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
    own_request: RequestState = RequestState.NONE


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
    """The members that train together. Only ever replaced by a view of a higher generation."""

    run: str
    generation: int
    members: tuple[ViewMember, ...]
    seed: int
    heads: tuple[str, ...]
    """The clients with labels, of all that were aligned for the run."""

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
    joiners: tuple[RingMemberInfo, ...] = ()
    """The clients that become members once they and all members reach each other."""
    complete: int = 0
    """The highest step whose checkpoint all members have; older ones may be removed."""
    resume: int | None = None
    """A client that joins loads its best checkpoint up to this step; None: it has to wait."""
    waiting_for: tuple[str, ...] = ()
    """The clients without which training does not go on."""
    left_out: str = ""
    """Why this process is not a member any more."""


@dataclass(frozen=True)
class Stopped:
    """Directive: the run is over before its end."""

    run: str
    reason: str


@dataclass(frozen=True)
class Finished:
    """Directive: all have finished, and the client may end its session."""

    run: str


@dataclass(frozen=True)
class Publication:
    """Goes with each directive: the live runs, and the run that is held back."""

    live: tuple[str, ...] = ()
    """The last two, the newest last."""
    held_run: str = ""
    """A run that has finished, and goes live when no client holds it back any more."""
    held_by: tuple[str, ...] = ()


Directive = Gathering | Training | Stopped | Finished
