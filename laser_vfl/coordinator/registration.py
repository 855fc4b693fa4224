"""What the coordinator remembers of one process of a client."""

from dataclasses import dataclass

from laser_vfl.coordinator.directives import (
    Finished,
    RingMember,
    State,
    Stopped,
    ViewMember,
)


@dataclass
class Registration:
    """One process of a client, from its registration to its verdict or the end of its session."""

    client: str
    nonce: str
    incarnation: int
    address: str
    has_head: bool
    wants_run: bool
    seen_at: float
    session: int = 0
    in_session: bool = False
    state: State = State.JOINING
    run: str = ""
    next_step: int = 0
    num_steps: int = 0
    model_run: str = ""
    """The run of the model that it serves."""
    busy_since: float = 0.0
    """Since when it has been at one step without waiting for anybody."""
    waiting: bool = False
    """Whether it waited for somebody when it was last heard of."""
    prepared: bool = False
    """Whether it has read its tables."""
    num_newcomers: int = 0
    """How many people it could serve but cannot name to its peers yet."""
    naming: str = ""
    """The alignment by which it names people."""
    verdict: Stopped | Finished | None = None

    @property
    def is_computing(self) -> bool:
        """Whether it is at a step, and nobody else holds it up."""
        return self.state is State.RUNNING and not self.waiting

    @property
    def available(self) -> bool:
        """Whether a run could count on this client."""
        return self.in_session and self.verdict is None

    @property
    def complete(self) -> bool:
        """Whether this client could start a run now."""
        return self.available and self.prepared

    def as_member(self) -> ViewMember:
        """Return this client as the others of a run that starts need to know it."""
        return ViewMember(self.client, self.incarnation, self.address, 0, self.has_head)

    def as_ring_member(self) -> RingMember:
        """Return this client as the others of an alignment need to know it."""
        return RingMember(self.client, self.incarnation, self.address)
