"""Which alignment is under way, whom it calls, and which comes next."""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from laser_vfl.coordinator.alignment import Alignment, Lists, Results
from laser_vfl.coordinator.directives import Call, RefusedDryRun
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.run import Run
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused, ContractError
from laser_vfl.core.purpose import Purpose, Scheme
from laser_vfl.wire.protocol import MAX_POINTS

log = logging.getLogger(__name__)

AFTER_REFUSAL_S = 60.0
"""How long newcomers wait after an alignment of them was refused."""

YIELD_S = 60.0
"""How long a run that could start waits for an alignment that is for something else."""

MAX_REFUSED = 16

MOST_FAILED = 30
FAILED_WITHIN_S = 60.0
"""Who had so many dry runs that came to nothing, in this time, waits until it is over.

Each has everybody else begin to blind its tables, and nobody counts those that are not completed.
"""

Note = Callable[[str, Run | Alignment, str], None]


class Alignments:
    """One alignment at a time: for a run, for somebody who wants to know, or for newcomers."""

    def __init__(
        self,
        roster: Sequence[str],
        scheme: Scheme,
        new_id: Callable[[], str],
        on_event: Note,
        members_of: MutableMapping[str, tuple[str, ...]] | None = None,
        timeout_s: float = math.inf,
        max_people: int = MAX_POINTS,
    ) -> None:
        self.scheme = scheme
        self._max_people = max_people
        self._timeout_s = timeout_s
        self.current: Alignment | None = None
        self.dry_run_for: set[str] = set()
        """Who asked for a dry run that has not been done yet."""
        self.refused_dry_run: RefusedDryRun | None = None
        """The last one."""
        self._roster = roster
        self._new_id = new_id
        self._on_event = on_event
        self._members_of = {} if members_of is None else members_of
        """Who took part in the runs whose models may be served."""
        self._refused: dict[str, str] = {}
        """Why the last that were refused were, for those who have not heard of it yet."""
        self._failed: dict[str, deque[float]] = {}
        """When the last dry runs that each wished for came to nothing."""
        self._num_begun = 0
        self._newcomers_wait_until = 0.0

    def may_call(self, registrations: Mapping[str, Registration], now: float) -> bool:
        """Whether a run's may begin. One without a run is not waited for very long."""
        current = self.current
        if current is None:
            return True
        if not current.is_over:
            return current.purpose is not Purpose.RUN and now > current.begun_at + YIELD_S
        return current.purpose is Purpose.NEWCOMERS or current.may_be_forgotten(registrations, now)

    @property
    def is_for_run(self) -> bool:
        """Whether the one under way is for a run."""
        current = self.current
        return current is not None and not current.is_over and current.purpose is Purpose.RUN

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Whose turn it is."""
        return self.current.waiting_for if self.current else ()

    def call_to(self, registration: Registration) -> Call | None:
        """Return the call to the alignment under way, if this client is called."""
        current = self.current
        if current is None or current.is_over:
            return None
        return current.call if current.has(registration) else None

    def number_of_dry_run(self, registration: Registration) -> int:
        """Return the number of the first dry run that answers a client, begun or not."""
        current = self.current
        if current is None or current.is_over or current.purpose is not Purpose.DRY_RUN:
            return self._num_begun + 1
        return current.number if current.has(registration) else self._num_begun + 1

    def of(self, registration: Registration, alignment: str) -> Alignment:
        """Return the alignment that a member's message is about."""
        current = self.current
        if alignment in self._refused:
            raise AlignmentRefused(self._refused[alignment])
        if current is None or current.id != alignment:
            raise AlignmentOver("that alignment is not under way any more")
        if not current.has(registration):
            raise ContractError(f"{registration.client} was not called to that alignment")
        return current

    def call(
        self, purpose: Purpose, members: Sequence[Registration], now: float, run: str = ""
    ) -> None:
        """Begin an alignment. For newcomers it uses the scalars of the run that they come to."""
        if self.current is not None and not self.current.is_over:
            self._give_up(self.current, "a run goes first")
        if purpose is Purpose.RUN:
            self.dry_run_for.clear()
        ring = tuple(registration.as_ring_member() for registration in members)
        id = self._new_id()
        self._num_begun += 1
        self.current = Alignment(
            id,
            purpose,
            self.scheme,
            run or id,
            ring,
            self._num_begun,
            begun_at=now,
            max_people=self._max_people,
        )
        absent = [name for name in self._roster if name not in self.current.members]
        without = f"without {', '.join(absent)}" if absent else ""
        self._on_event("aligning", self.current, without)

    def outcome(
        self, registration: Registration, alignment: str
    ) -> dict[str, ClientAlignment] | None:
        """Return a client's own rows in an alignment, or None while it is under way."""
        current = self.of(registration, alignment)
        return current.results[registration.client] if current.results else None

    def fetched(self, registration: Registration, alignment: str) -> None:
        """Take note that a client knows the outcome."""
        if self.current is not None and self.current.id == alignment:
            self.current.fetched(registration.client)

    def take_lists(self) -> tuple[Alignment, Lists] | None:
        """Return the alignment whose lists are all there, once; from then on it has none."""
        lists = self.current.take_lists() if self.current and not self.current.is_over else None
        return (self.current, lists) if self.current and lists else None

    def grouped(self, alignment: Alignment, results: Results, now: float) -> bool:
        """Take the outcome, unless it comes too late."""
        if alignment is not self.current or alignment.is_over:
            return False
        alignment.results, alignment.over_at = results, now
        self._on_event("aligned", alignment, "")
        if alignment.purpose is Purpose.DRY_RUN:
            self._answered(alignment)
        elif alignment.purpose is Purpose.RUN:
            self.current = None
            self._members_of[alignment.id] = alignment.members
        return True

    def abort(self, alignment: Alignment, reason: str, now: float) -> None:
        """End an alignment for everybody, with a reason that all hear."""
        if alignment is not self.current:
            return
        log.warning("%s", reason)
        self._on_event("refused", alignment, reason)
        self.current = None
        self._refused[alignment.id] = reason
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        if alignment.purpose is Purpose.NEWCOMERS:
            self._newcomers_wait_until = now + AFTER_REFUSAL_S
        elif alignment.purpose is Purpose.DRY_RUN:
            self.refused_dry_run = RefusedDryRun(alignment.number, reason)
            self._note_failed(alignment, now)
            self._answered(alignment)

    def pause_s(self, client: str, now: float) -> float:
        """Return how long a client waits before there is another dry run for it."""
        failed = self._failed.get(client)
        if failed is None or len(failed) < MOST_FAILED:
            return 0.0
        return max(failed[0] + FAILED_WITHIN_S - now, 0.0)

    def _note_failed(self, alignment: Alignment, now: float) -> None:
        for name in self.dry_run_for.intersection(alignment.members):
            self._failed.setdefault(name, deque(maxlen=MOST_FAILED)).append(now)

    def _answered(self, alignment: Alignment) -> None:
        """Drop the wishes for a dry run of those who were called to this one."""
        self.dry_run_for.difference_update(alignment.members)

    def lost(self, registration: Registration, reason: str, now: float) -> None:
        """An alignment needs all of its members; without one of them it is given up."""
        current = self.current
        if current is None or current.is_over or not current.has(registration):
            self.dry_run_for.discard(registration.client)
            return
        if current.purpose is Purpose.DRY_RUN:
            self._note_failed(current, now)
        self.dry_run_for.discard(registration.client)
        log.warning("lost %s in the alignment: %s", registration.client, reason)
        if current.purpose is Purpose.NEWCOMERS:
            self._newcomers_wait_until = now + AFTER_REFUSAL_S
        self._give_up(current, f"lost {registration.client}: {reason}")

    def make_way(self, now: float) -> None:
        """Give up an alignment that is not for a run, if one that could start has waited enough."""
        current = self.current
        if current is None or current.is_over or current.purpose is Purpose.RUN:
            return
        if now > current.begun_at + YIELD_S:
            self._give_up(current, "a run goes first")

    def late(self, now: float) -> Alignment | None:
        """Return the alignment under way, if it has taken too long."""
        current = self.current
        if current is None or current.is_over or now <= current.begun_at + self._timeout_s:
            return None
        return current

    def _give_up(self, alignment: Alignment, reason: str) -> None:
        self.current = None
        self._on_event("given up", alignment, reason)

    def tick(
        self, registrations: Mapping[str, Registration], now: float, *, is_wanted: bool
    ) -> None:
        """Begin what is due: a dry run, or an alignment of newcomers while no run is wanted."""
        if self.current is not None:
            if not self.current.may_be_forgotten(registrations, now):
                return
            self.current = None
        there = [r for n in self._roster if (r := registrations.get(n)) and r.available]
        if any(r.client in self.dry_run_for and not self.pause_s(r.client, now) for r in there):
            self.call(Purpose.DRY_RUN, there, now)
        elif self.scheme == "ecdh" and not is_wanted and now >= self._newcomers_wait_until:
            for run in sorted(
                {r.report.model_run for r in there if r.report.num_newcomers or r.report.naming}
            ):
                members = [r for r in there if r.report.model_run == run]
                is_whole = tuple(r.client for r in members) == self._members_of.get(run)
                if is_whole and _is_due(members):
                    self.call(Purpose.NEWCOMERS, members, now, run)
                    return


def _is_due(members: Sequence[Registration]) -> bool:
    """Whether there is somebody new, or not everybody names people by the same alignment."""
    return (
        any(r.report.num_newcomers for r in members) or len({r.report.naming for r in members}) > 1
    )
