"""What the coordinator remembers of one process of a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from laser_vfl.coordinator.rules.directives import (
    Finished,
    Report,
    RingMemberInfo,
    State,
    Stopped,
    ViewMember,
)

_DURABLE = (
    "client",
    "nonce",
    "incarnation",
    "address",
    "has_head",
    "wants_run",
    "excluded",
    "identity",
    "rejected",
)
NO_END = 2**63 - 1
"""Stands for the end of a run as long as it is not known."""


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
    """The identity in its certificate."""
    session: int = 0
    in_session: bool = False
    left_at: float = 0.0
    """When its last session broke, or by when it should have opened one."""
    report: Report = field(default_factory=Report)
    heard: bool = False
    """Whether it has reported since it registered, or since the coordinator was restarted."""
    moved_at: float = 0.0
    """When it was last seen to have done a step, or came."""
    furthest: int = 0
    """The highest `next_step` that it has told of since its view began."""
    excluded: str = ""
    """Why a view has left it out; it has to register anew."""
    rejected: bool = False
    """Whether an operator has rejected the run that it asks for."""
    verdict: Stopped | Finished | None = None

    @property
    def is_computing(self) -> bool:
        """Whether it is at a step, and nobody else holds it up, as it says.

        What it says of an earlier generation, which it has stopped, says nothing.
        """
        report = self.report
        is_at_it = report.state in (State.READY, State.RUNNING)
        return is_at_it and not report.waiting_for and not report.stopped

    def has_stopped(self, generation: int) -> bool:
        """Whether it has stopped this generation."""
        return self.report.stopped == generation

    @property
    def available(self) -> bool:
        """Whether a run could count on this client."""
        return self.in_session and self.verdict is None and not self.excluded

    @property
    def complete(self) -> bool:
        """Whether this client could start a run now."""
        return self.available and self.report.prepared

    def renew(self, address: str, now: float, *, has_head: bool, wants_run: bool) -> None:
        """The same process has registered again; a run that it asks for, it asks for anew."""
        self.address, self.has_head, self.wants_run = address, has_head, wants_run
        self.seen_at, self.rejected = now, False

    def session_opened(self, now: float) -> int:
        """Count a session, and return its number."""
        self.session += 1
        self.in_session, self.seen_at = True, now
        return self.session

    def session_ended(self, now: float) -> None:
        """Its last session broke."""
        self.in_session = False
        self.seen_at = self.left_at = now

    def exclude(self, reason: str) -> None:
        """A view has left it out."""
        self.excluded = reason

    def reject(self) -> None:
        """An operator has rejected the run that it asks for."""
        self.rejected = True

    def conclude(self, verdict: Stopped | Finished) -> None:
        """Nothing more can come of what it has registered for."""
        self.verdict = verdict

    def rest(self, now: float, due_at: float) -> None:
        """Start its timeouts afresh; it should open a session by `due_at`."""
        self.seen_at = self.moved_at = now
        self.left_at = due_at

    def begins(self, now: float) -> None:
        """A view has it from now on: what it did before counts for nothing."""
        self.report = replace(self.report, stopped=0, waiting_for=(), phase_s=0.0)
        self.moved_at, self.furthest = now, min(self.report.next_step, self.furthest)

    def hear(self, report: Report, now: float, end: int = NO_END) -> None:
        """Take in what it says; only a step further than ever before is progress.

        No step after the run's `end` is, as far as others have told where that is.
        """
        next_step = min(report.next_step, end)
        if next_step > self.furthest or not self.heard:
            self.moved_at, self.furthest = now, max(next_step, self.furthest)
        self.seen_at, self.report, self.heard = now, report, True

    def as_member(self, next_step: int = 0) -> ViewMember:
        """Return this client as the others of a run need to know it."""
        return ViewMember(self.client, self.incarnation, self.address, next_step, self.has_head)

    def as_ring_member(self) -> RingMemberInfo:
        """Return this client as others that have to reach it need to know it."""
        return RingMemberInfo(self.client, self.incarnation, self.address)

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        finished = self.verdict.run if isinstance(self.verdict, Finished) else None
        return {**{name: getattr(self, name) for name in _DURABLE}, "finished": finished}

    @classmethod
    def restore(cls, stored: Mapping[str, Any], now: float, due_at: float) -> Self:
        """Return the registration that a snapshot was taken of; it should be back by `due_at`."""
        fields = {name: value for name, value in stored.items() if name != "finished"}
        finished = stored["finished"]
        return cls(
            **fields,
            seen_at=due_at,
            left_at=due_at,
            moved_at=now,
            verdict=Finished(finished) if finished else None,
        )
