"""How far a client is in a run, for its heartbeats, its status and its metrics."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Protocol

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.work_progress import WorkProgress
from laser_vfl.core.availability import SampleCounts
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1 import peer_pb2

MAX_REPORTED = 32
"""Heartbeats name at most so many checkpoints, the latest ones."""


class StreamCounts(Protocol):
    """What the streams to the other members say of themselves."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many frames were of no use, by reason."""

    @property
    def offences(self) -> Mapping[str, int]:
        """How often peers broke the contract, by reason."""

    @property
    def waiting_for(self) -> Sequence[int]:
        """The peers whose frames the training thread waits for, by place in the roster."""

    def are_up(self) -> dict[str, bool]:
        """Tell of each member whether there is a stream to it now."""

    def reports(self) -> Sequence[pb.LinkReport]:
        """Say how each stream is."""


class Progress:
    """Written by the training thread and the event loop, read by the heartbeats."""

    def __init__(
        self, metrics: ClientMetrics | None = None, work: WorkProgress | None = None
    ) -> None:
        self.work = work or WorkProgress()
        """Of long work outside of training."""
        self.samples = SampleCounts()
        """Of the run under way, or of the last one."""
        self.next_step = 0
        self.num_steps = 0
        """The training steps of the run."""
        self._end = 0
        """How many steps the run under way has, evaluation counted in."""
        self.num_redone = 0
        self.stopped = 0
        self.leaving = False
        self.generation = 0
        self.members: tuple[str, ...] = ()
        self.checkpoints: tuple[int, ...] = ()
        self._metrics = metrics or ClientMetrics()
        self._roster: Sequence[str] = ()
        self._streams: StreamCounts | None = None
        self._dropped_before: Counter[str] = Counter()
        self._offences_before: Counter[str] = Counter()
        self._dropped_earlier: Counter[str] = Counter()
        self._offences_earlier: Counter[str] = Counter()
        self._is_waiting = False
        self._since: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the training thread waits for a peer."""
        return self._is_waiting

    @property
    def phase_s(self) -> float:
        """For how long it has waited, or computed; 0 while there is nothing to do."""
        return time.monotonic() - self._since if self._since is not None else 0.0

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The peers whose frames the training thread waits for."""
        if self._streams is None or not self._is_waiting:
            return ()
        return tuple(self._roster[index] for index in self._streams.waiting_for)

    @property
    def streams_up(self) -> dict[str, bool]:
        """Of each member of the run under way whether there is a stream to it now."""
        return self._streams.are_up() if self._streams else {}

    @property
    def dropped(self) -> Counter[str]:
        """Frames that were dropped in this run, by reason."""
        now = dict(self._streams.dropped) if self._streams else {}
        return self._dropped_before + Counter(now)

    @property
    def offences(self) -> Counter[str]:
        """How often peers broke the contract in this run, by reason."""
        now = dict(self._streams.offences) if self._streams else {}
        return self._offences_before + Counter(now)

    @property
    def dropped_ever(self) -> Counter[str]:
        """Frames that were dropped since this client was started."""
        return self._dropped_earlier + self.dropped

    @property
    def offences_ever(self) -> Counter[str]:
        """How often peers broke the contract since then."""
        return self._offences_earlier + self.offences

    def begin_run(
        self, roster: Sequence[str], num_steps: int, num_evaluations: int, samples: SampleCounts
    ) -> None:
        """Count afresh for a run. Evaluation steps are numbered after the training steps."""
        self._end = num_steps + num_evaluations
        self._dropped_earlier, self._offences_earlier = self.dropped_ever, self.offences_ever
        self._roster, self.num_steps, self.samples = roster, num_steps, samples
        self.next_step = self.num_redone = self.stopped = self.generation = 0
        self.leaving, self.members, self._streams = False, (), None
        self._dropped_before, self._offences_before = Counter(), Counter()

    def begin_view(self, generation: int, members: tuple[str, ...]) -> None:
        """Train by a view from now on."""
        self.generation, self.members, self.stopped = generation, members, 0

    def reset(self, checkpoints: tuple[int, ...]) -> None:
        """No step is under way; what happened in the last run is kept until the next one."""
        self.checkpoints = checkpoints
        self.next_step = self.num_steps = self.stopped = 0
        self.leaving, self._streams = False, None
        self.rests()

    def use(self, streams: StreamCounts | None) -> None:
        """Count on with other streams."""
        self._dropped_before, self._offences_before = self.dropped, self.offences
        self._streams = streams

    def reached(self, next_step: int) -> None:
        """Everything before a step is done."""
        self.next_step = next_step

    def finished(self) -> None:
        """All steps of the run are done."""
        self.next_step = self._end

    @property
    def num_trained(self) -> int:
        """How many training steps are done or left to others."""
        return min(self.next_step, self.num_steps)

    def holds(self, checkpoints: tuple[int, ...]) -> None:
        """There are checkpoints of these steps on disk."""
        self.checkpoints = checkpoints

    def has_stopped(self, generation: int) -> bool:
        """Nothing of the views up to a generation goes on; return whether that is news."""
        is_news, self.stopped = self.stopped != generation, generation
        return is_news

    def leaves(self, stopped: int) -> None:
        """This client takes part in nothing more, and has stopped up to a generation."""
        self.leaving, self.stopped = True, stopped

    def steps_dropped(self, num: int) -> None:
        """Count steps that have to be done again."""
        self.num_redone += num

    @contextmanager
    def waiting(self, kind: "peer_pb2.FrameKind.ValueType") -> Iterator[None]:
        """The training thread waits in here for frames of a kind."""
        self._enter(is_waiting=True)
        try:
            with self._metrics.waiting(kind):
                yield
        finally:
            self._enter(is_waiting=False)

    def starts_phase(self) -> None:
        """Something new begins; it has taken no time yet."""
        self._enter(is_waiting=False)

    def rests(self) -> None:
        """There is nothing to do."""
        self._is_waiting, self._since = False, None

    def describe(self, heartbeat: pb.Heartbeat) -> None:
        """Put all of it into a heartbeat."""
        heartbeat.next_step = self.next_step
        heartbeat.num_steps = self.num_steps
        heartbeat.stopped = self.stopped
        heartbeat.leaving = self.leaving
        heartbeat.phase_s = self.phase_s
        heartbeat.num_redone = self.num_redone
        heartbeat.num_dropped = self.dropped.total()
        heartbeat.num_offences = self.offences.total()
        heartbeat.ClearField("work")
        if (work := self.work.now).work:
            heartbeat.work.CopyFrom(pb.Work(**asdict(work)))
        for name, values in (
            ("waiting_for", self.waiting_for),
            ("checkpoints", self.checkpoints[-MAX_REPORTED:]),
            ("links", self._streams.reports() if self._streams else ()),
        ):
            heartbeat.ClearField(name)  # type: ignore[arg-type]
            getattr(heartbeat, name).extend(values)

    def _enter(self, *, is_waiting: bool) -> None:
        self._is_waiting, self._since = is_waiting, time.monotonic()
