"""The alignment under way, and the one that comes next."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from laser_vfl.coordinator.rules.alignment.alignment import Alignment, Lists, Results
from laser_vfl.coordinator.rules.directives import Call, RefusedDryRun
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.policies import AlignmentPolicy
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.alignment_purpose import AlignmentPurpose, Scheme
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused, ContractError

log = logging.getLogger(__name__)

MAX_REFUSED = 16


class Alignments:
    """Runs one alignment at a time: for a run, as a dry run, or of unaligned ids."""

    def __init__(
        self,
        roster: Sequence[str],
        scheme: Scheme,
        policy: AlignmentPolicy,
        new_id: Callable[[], str],
        observer: FederationObserver,
        members_of: MutableMapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.scheme = scheme
        self._policy = policy
        self.current: Alignment | None = None
        self._dry_run_for: set[str] = set()
        """The clients that asked for a dry run which has not been done yet."""
        self.refused_dry_run: RefusedDryRun | None = None
        """The alignment under way, or the last one."""
        self._roster = roster
        self._new_id = new_id
        self._observer = observer
        self._members_of = {} if members_of is None else members_of
        """The members of the runs whose models may be served."""
        self._refused: dict[str, str] = {}
        """Why the last alignments were refused, for clients that have not heard of it yet."""
        self._failed: dict[str, deque[float]] = {}
        """When the last dry runs of each client failed."""
        self._unusable: set[str] = set()
        """The runs whose points did not serve for the alignment of another."""
        self._num_begun = 0
        self._no_unaligned_before = 0.0

    def request_dry_run(self, client: str) -> None:
        """Take note that a client asks for a dry run."""
        self._dry_run_for.add(client)

    def may_call(self, registrations: Mapping[str, Registration], now: float) -> bool:
        """Whether the alignment of a run may begin. It does not wait long for one without a run."""
        current = self.current
        if current is None:
            return True
        if not current.is_over:
            return (
                current.purpose is not AlignmentPurpose.RUN
                and now > current.begun_at + self._policy.yield_s
            )
        return current.purpose is AlignmentPurpose.UNALIGNED_IDS or current.may_be_forgotten(
            registrations, now
        )

    @property
    def is_for_run(self) -> bool:
        """Whether the one under way is for a run."""
        current = self.current
        return (
            current is not None and not current.is_over and current.purpose is AlignmentPurpose.RUN
        )

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The members that the alignment under way waits for."""
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
        if current is None or current.is_over or current.purpose is not AlignmentPurpose.DRY_RUN:
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
        self, purpose: AlignmentPurpose, members: Sequence[Registration], now: float, run: str = ""
    ) -> None:
        """Begin an alignment; one of unaligned ids uses the scalars of the run they are for.

        That of a run uses those of the last one, if its members are known to each other by that.
        """
        if self.current is not None and not self.current.is_over:
            self._give_up(self.current, "a run goes first")
        if purpose is AlignmentPurpose.RUN:
            self._dry_run_for.clear()
            run = self._basis(members)
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
            policy=self._policy,
        )
        absent = [name for name in self._roster if name not in self.current.members]
        without = f"without {', '.join(absent)}" if absent else ""
        self._observer.happened("aligning", self.current, without)

    def _basis(self, members: Sequence[Registration]) -> str:
        """Return the run whose points all of these clients still have, if there is one.

        All name people by the same alignment, which was of these clients and of nobody else.
        """
        named = {(r.report.model_run, r.report.naming) for r in members}
        run, naming = named.pop()
        is_known = bool(naming) and self._members_of.get(run) == tuple(r.client for r in members)
        is_usable = self.scheme == "ecdh" and run not in self._unusable
        return run if not named and is_known and is_usable else ""

    def withdraw_dry_run(self, client: str) -> None:
        """Do no dry run for a client any more, and end one that nobody else has asked for."""
        self._dry_run_for.discard(client)
        current = self.current
        if current is None or current.is_over or current.purpose is not AlignmentPurpose.DRY_RUN:
            return
        if not self._dry_run_for.intersection(current.members):
            self._give_up(current, f"{client} does not wait for it any more")

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
        alignment.grouped(results, now)
        self._observer.happened("aligned", alignment, "")
        if alignment.purpose is AlignmentPurpose.DRY_RUN:
            self._answered(alignment)
        elif alignment.purpose is AlignmentPurpose.RUN:
            self.current = None
            self._members_of[alignment.id] = alignment.members
        return True

    def abort(self, alignment: Alignment, reason: str, now: float) -> None:
        """End an alignment for everybody, with a reason that all hear."""
        if alignment is not self.current:
            return
        log.warning("%s", reason)
        self._observer.happened("refused", alignment, reason)
        if alignment.purpose is AlignmentPurpose.RUN and alignment.is_based:
            self._unusable.add(alignment.run)
        self._end(alignment, reason)
        if alignment.purpose is AlignmentPurpose.UNALIGNED_IDS:
            self._no_unaligned_before = now + self._policy.after_refusal_s
        elif alignment.purpose is AlignmentPurpose.DRY_RUN:
            self.refused_dry_run = RefusedDryRun(alignment.number, reason)
            self._note_failed(alignment, now)
            self._answered(alignment)

    def cancel(self, alignment: Alignment, reason: str) -> None:
        """End that of a run for everybody, though nobody has failed in it."""
        self._observer.happened("given up", alignment, reason)
        self._end(alignment, reason)

    def _end(self, alignment: Alignment, reason: str) -> None:
        """Take it as ended, for a reason that its members hear when they ask for it."""
        self.current = None
        self._refused[alignment.id] = reason
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def pause_s(self, client: str, now: float) -> float:
        """Return how long a client waits before there is another dry run for it."""
        failed = self._failed.get(client)
        if failed is None or len(failed) < self._policy.most_failed:
            return 0.0
        return max(failed[0] + self._policy.failed_within_s - now, 0.0)

    def _note_failed(self, alignment: Alignment, now: float) -> None:
        for name in self._dry_run_for.intersection(alignment.members):
            self._failed.setdefault(name, deque(maxlen=self._policy.most_failed)).append(now)

    def _answered(self, alignment: Alignment) -> None:
        """Drop the requests for a dry run of those who were called to this one."""
        self._dry_run_for.difference_update(alignment.members)

    def lost(self, registration: Registration, reason: str, now: float) -> None:
        """An alignment needs all of its members; without one of them it is given up."""
        current = self.current
        if current is None or current.is_over or not current.has(registration):
            self._dry_run_for.discard(registration.client)
            return
        if current.purpose is AlignmentPurpose.DRY_RUN:
            self._note_failed(current, now)
        self._dry_run_for.discard(registration.client)
        log.warning("lost %s in the alignment: %s", registration.client, reason)
        if current.purpose is AlignmentPurpose.UNALIGNED_IDS:
            self._no_unaligned_before = now + self._policy.after_refusal_s
        self._give_up(current, f"lost {registration.client}: {reason}")

    def make_way(self, now: float) -> None:
        """Give up an alignment that is not for a run, if one that could start has waited enough."""
        current = self.current
        if current is None or current.is_over or current.purpose is AlignmentPurpose.RUN:
            return
        if now > current.begun_at + self._policy.yield_s:
            self._give_up(current, "a run goes first")

    def late(self, now: float) -> Alignment | None:
        """Return the alignment under way, if it has taken too long."""
        current = self.current
        if current is None or current.is_over or now <= current.begun_at + self._policy.timeout_s:
            return None
        return current

    def _give_up(self, alignment: Alignment, reason: str) -> None:
        self.current = None
        self._observer.happened("given up", alignment, reason)

    def tick(
        self, registrations: Mapping[str, Registration], now: float, *, is_wanted: bool
    ) -> None:
        """Begin what is due: a dry run, or an alignment of unaligned ids while no run is wanted."""
        if self.current is not None:
            if not self.current.may_be_forgotten(registrations, now):
                return
            self.current = None
        there = [r for n in self._roster if (r := registrations.get(n)) and r.available]
        if any(r.client in self._dry_run_for and not self.pause_s(r.client, now) for r in there):
            self.call(AlignmentPurpose.DRY_RUN, there, now)
        elif self.scheme == "ecdh" and not is_wanted and now >= self._no_unaligned_before:
            for run in sorted(
                {r.report.model_run for r in there if r.report.num_unaligned or r.report.naming}
            ):
                members = [r for r in there if r.report.model_run == run]
                is_whole = tuple(r.client for r in members) == self._members_of.get(run)
                if is_whole and _is_due(members):
                    self.call(AlignmentPurpose.UNALIGNED_IDS, members, now, run)
                    return


def _is_due(members: Sequence[Registration]) -> bool:
    """Whether a client has unaligned ids, or clients name people by different alignments."""
    return (
        any(r.report.num_unaligned for r in members) or len({r.report.naming for r in members}) > 1
    )
