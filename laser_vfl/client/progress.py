"""How far a client is in a run, for its heartbeats, its status and its metrics."""

import time
from collections import Counter
from collections.abc import Sequence

from laser_vfl.client.links import Links
from laser_vfl.client.meters import Meters
from laser_vfl.core.availability import SampleCounts
from laser_vfl.v1 import coordinator_pb2 as pb

MAX_REPORTED = 32
"""So many of the latest checkpoints are told of."""


class Progress:
    """Written by the training thread and the event loop, read by the heartbeats."""

    def __init__(self, meters: Meters | None = None) -> None:
        self.meters = meters or Meters()
        self.roster: Sequence[str] = ()
        self.samples = SampleCounts()
        """Of the run under way, or of the last one."""
        self.links: Links | None = None
        self.next_step = 0
        self.num_steps = 0
        """How many steps the run under way has, evaluation counted in."""
        self.num_redone = 0
        self.stopped = 0
        self.leaving = False
        self.generation = 0
        self.members: tuple[str, ...] = ()
        self.checkpoints: tuple[int, ...] = ()
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

    @is_waiting.setter
    def is_waiting(self, value: bool) -> None:
        self._is_waiting, self._since = value, time.monotonic()

    @property
    def phase_s(self) -> float:
        """For how long it has waited, or computed; 0 while there is nothing to do."""
        return time.monotonic() - self._since if self._since is not None else 0.0

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Whose frames the training thread waits for."""
        if self.links is None or not self._is_waiting:
            return ()
        return tuple(self.roster[index] for index in self.links.inbox.waiting_for)

    @property
    def dropped(self) -> Counter[str]:
        """Frames that were dropped in this run, by reason."""
        now = dict(self.links.inbox.dropped) if self.links else {}
        return self._dropped_before + Counter(now)

    @property
    def offences(self) -> Counter[str]:
        """How often peers broke the contract in this run, by reason."""
        now = dict(self.links.inbox.offences) if self.links else {}
        return self._offences_before + Counter(now)

    @property
    def dropped_ever(self) -> Counter[str]:
        """Frames that were dropped since this client was started."""
        return self._dropped_earlier + self.dropped

    @property
    def offences_ever(self) -> Counter[str]:
        """How often peers broke the contract since then."""
        return self._offences_earlier + self.offences

    def begin_run(self, roster: Sequence[str], num_steps: int) -> None:
        """Count afresh."""
        self._dropped_earlier, self._offences_earlier = self.dropped_ever, self.offences_ever
        self.roster, self.num_steps = roster, num_steps
        self.next_step = self.num_redone = self.stopped = self.generation = 0
        self.leaving, self.members, self.links = False, (), None
        self._dropped_before, self._offences_before = Counter(), Counter()

    def reset(self, checkpoints: tuple[int, ...]) -> None:
        """No step is under way; what happened in the last run is kept until the next one."""
        self.checkpoints = checkpoints
        self.next_step = self.num_steps = self.stopped = 0
        self.leaving, self.links = False, None
        self.rests()

    def use(self, links: Links | None) -> None:
        """Count on with other streams."""
        self._dropped_before, self._offences_before = self.dropped, self.offences
        self.links = links

    def starts_phase(self) -> None:
        """Something new begins; it has taken no time yet."""
        self.is_waiting = False

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
        for name, values in (
            ("waiting_for", self.waiting_for),
            ("checkpoints", self.checkpoints[-MAX_REPORTED:]),
            ("links", self.links.reports() if self.links else ()),
        ):
            heartbeat.ClearField(name)  # type: ignore[arg-type]
            getattr(heartbeat, name).extend(values)
