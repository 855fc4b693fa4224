"""What the coordinator remembers of one process of a client."""

from dataclasses import dataclass, field, replace

from laser_vfl.coordinator.directives import (
    Finished,
    Report,
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
    identity: str = ""
    """Whom its certificate names."""
    session: int = 0
    in_session: bool = False
    left_at: float = 0.0
    """When its last session broke, or by when it should have opened one."""
    report: Report = field(default_factory=Report)
    heard: bool = False
    """Whether it has reported since it registered, or since the coordinator was restarted."""
    moved_at: float = 0.0
    """When it was last seen to have done a step, or came."""
    excluded: str = ""
    """Why a view has left it out; it has to register anew."""
    verdict: Stopped | Finished | None = None

    @property
    def is_computing(self) -> bool:
        """Whether it is at a step, and nobody else holds it up."""
        report = self.report
        is_at_it = report.state in (State.READY, State.RUNNING)
        return is_at_it and not report.waiting_for and not report.stopped

    @property
    def available(self) -> bool:
        """Whether a run could count on this client."""
        return self.in_session and self.verdict is None and not self.excluded

    @property
    def complete(self) -> bool:
        """Whether this client could start a run now."""
        return self.available and self.report.prepared

    def begins(self, now: float) -> None:
        """A view has it from now on: what it did before counts for nothing."""
        self.report = replace(self.report, stopped=0, waiting_for=(), phase_s=0.0)
        self.moved_at = now

    def as_member(self, next_step: int = 0) -> ViewMember:
        """Return this client as the others of a run need to know it."""
        return ViewMember(self.client, self.incarnation, self.address, next_step, self.has_head)

    def as_ring_member(self) -> RingMember:
        """Return this client as others that have to reach it need to know it."""
        return RingMember(self.client, self.incarnation, self.address)
