"""What the coordinator decides: who is registered, when a run starts, and how it ends.

Plain state and plain rules: events come in as method calls that carry the time, decisions are read
with `directive` and `alignments`. No sockets, no clock of its own.
"""

import logging
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from laser_vfl.coordinator.alignment import Alignment, Results
from laser_vfl.coordinator.alignments import Alignments
from laser_vfl.coordinator.changes import Departure
from laser_vfl.coordinator.directives import (
    Directive,
    Finished,
    Gathering,
    Report,
    StartRule,
    State,
    Stopped,
    View,
)
from laser_vfl.coordinator.membership import Membership
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.registry import Registry
from laser_vfl.coordinator.run import Run
from laser_vfl.coordinator.starting import Starting
from laser_vfl.coordinator.status import (
    ClientSummary,
    FederationStatus,
    summarize,
)
from laser_vfl.coordinator.suspicion import SILENT_S, Rules
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.availability import SampleCounts, count_samples
from laser_vfl.core.errors import ContractError, LimitExceeded, MismatchError, NotReady
from laser_vfl.core.purpose import Purpose, Scheme
from laser_vfl.wire.protocol import MAX_POINTS

log = logging.getLogger(__name__)

MAX_SEED = 2**63 - 1

FINISHED = "finished"

OWN_PAUSE_S = 2.0
"""After a pause of its own the coordinator has heard nobody, so it starts all timeouts afresh."""


class Federation:
    """All that the coordinator knows. One instance lives as long as the daemon."""

    def __init__(
        self,
        roster: Sequence[str],
        *,
        start: StartRule | None,
        rules: Rules,
        seed: int,
        new_seed: Callable[[], int],
        new_run_id: Callable[[], str],
        on_event: Callable[[str, Run | Alignment, str], None] = lambda event, run, reason: None,
        on_client: Callable[[str, Registration, str], None] = lambda event, client, reason: None,
        on_excluded: Callable[[Run, Departure, str], None] = lambda run, departure, identity: None,
        scheme: Scheme = "ecdh",
        members_of: MutableMapping[str, tuple[str, ...]] | None = None,
        alignment_timeout_s: float = math.inf,
        max_people: int = MAX_POINTS,
        wall_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.roster = tuple(roster)
        self.registry = Registry(self.roster)
        self.run: Run | None = None
        self.alignments = Alignments(
            self.roster, scheme, new_run_id, on_event, members_of, alignment_timeout_s, max_people
        )
        self._starting = Starting(len(self.roster), start)
        self._rules = rules
        self._seed = seed
        self._new_seed = new_seed
        self._on_event = on_event
        self._on_client = on_client
        self._on_excluded = on_excluded
        self._wall_clock = wall_clock
        self._ticked_at = 0.0
        self._retrain_seed: int | None = None
        """Somebody asked for a run with this seed, and it has not started yet."""
        self._samples = SampleCounts()
        self._last = ("", "")
        """The last run that ended, and how."""
        self._last_membership: Membership | None = None
        """Who took part in it, if it ended under this coordinator's eyes."""

    def register(
        self,
        client: str,
        *,
        nonce: str,
        address: str,
        has_head: bool,
        wants_run: bool,
        now: float,
        identity: str = "",
    ) -> Registration:
        """Admit a process as a client. The same nonce gets the same registration until a verdict.

        After a verdict it gets a fresh one, though its old session may still be open.
        """
        known = self.registry.known(client, nonce, now)
        if known is not None:
            known.address, known.has_head, known.wants_run = address, has_head, wants_run
            known.seen_at = now
            return known
        if client in self.registry:
            replaced = self.registry[client]
            self._lose(replaced, replaced.excluded or "it was started anew")
        registration = self.registry.add(client, nonce, address, has_head, wants_run, now, identity)
        self._on_client("joined", registration, "")
        return registration

    def knows(self, registration: Registration) -> bool:
        """Whether this is still the client's registration, neither lost nor renewed."""
        return self.registry.knows(registration)

    def find(self, client: str, incarnation: int) -> Registration:
        """Return the registration a message speaks for."""
        return self.registry.find(client, incarnation)

    def grouped(self, alignment: Alignment, results: Results, now: float) -> None:
        """An alignment's lists have been grouped; if it is for a run, the run begins."""
        if not self.alignments.grouped(alignment, results, now):
            return
        if alignment.purpose is not Purpose.RUN:
            return
        self.run = Run(alignment.id, alignment.members, self._next_seed, results)
        self._samples = count_samples(self.roster, next(iter(results.values()))["train"])
        self.tick(now)

    def refuse(
        self,
        registration: Registration,
        alignment: str,
        peer: str,
        reason: str,
        now: float,
        *,
        unreachable: bool = False,
    ) -> None:
        """A client cannot go on. Somebody who is gone is lost; otherwise it ends for everybody."""
        current = self.alignments.of(registration, alignment)
        if current.is_over:
            return
        accused = self.registry.get(peer) if peer in current.members else None
        if unreachable and accused and now - accused.seen_at > SILENT_S:
            self._lose(accused, f"{registration.client} cannot reach it, and it is silent")
            return
        self._abort(current, _refusal(registration.client, peer, reason), now)

    def dry_run(self, registration: Registration, now: float) -> None:
        """Align everybody who is there as soon as nothing else is under way."""
        if wait_s := self.alignments.pause_s(registration.client, now):
            raise LimitExceeded(
                f"too many dry runs of {registration.client} came to nothing in a short time",
                hint=f"mend what they were refused for, and ask again in {math.ceil(wait_s)} s",
                retry_after_s=wait_s,
            )
        if self.run is not None or self.alignments.is_for_run:
            raise NotReady("a run is under way", hint="ask again when it has finished")
        log.info("%s asked for a dry run of the alignment", registration.client)
        self.alignments.dry_run_for.add(registration.client)

    def heartbeat(self, registration: Registration, report: Report, now: float) -> None:
        """Take note of what a client is doing."""
        membership = self.run.membership if self.run else None
        is_of_run = membership is not None and report.run == membership.view.run
        if membership and is_of_run and report.stopped > membership.view.generation:
            raise ContractError("a client cannot have stopped a generation that there is not yet")
        registration.seen_at = now
        if report.next_step != registration.report.next_step or not registration.heard:
            registration.moved_at = now
        registration.report, registration.heard = report, True
        self.tick(now)

    def gone(self, registration: Registration, reason: str) -> None:
        """A client takes leave for good."""
        self._lose(registration, reason or "it stopped")

    def connected(self, registration: Registration, now: float) -> int:
        """A session opened; returns its number. A newer session replaces an older one."""
        registration.session += 1
        registration.in_session = True
        registration.seen_at = now
        return registration.session

    def disconnected(self, registration: Registration, session: int, now: float) -> None:
        """A session broke. Before a run that is its end; in a run the client may come back."""
        if session != registration.session:
            return
        registration.in_session = False
        registration.seen_at = registration.left_at = now
        if not self._in_view(registration):
            self._lose(registration, "its session ended")

    def retrain(self, seed: int | None) -> int:
        """Ask for a run of everybody; returns its seed. The wish stays until a run starts."""
        if self.run is not None:
            raise MismatchError(
                f"a run is under way: {self.run.id}",
                hint="wait for its end; `laser-vfl status` shows how far it is",
            )
        if seed is not None and not 0 <= seed <= MAX_SEED:
            raise ContractError(f"expected a seed from 0 to {MAX_SEED}, got {seed}")
        self._retrain_seed = self._new_seed() if seed is None else seed
        log.info("a run with seed %d was asked for", self._retrain_seed)
        return self._retrain_seed

    def tick(self, now: float) -> None:
        """Do whatever is due: drop who is silent, start a run, change or end it."""
        if now - self._ticked_at > OWN_PAUSE_S:
            self._rest(now)
        self._ticked_at = now
        for registration in list(self.registry.values()):
            silent_s = now - registration.seen_at
            if silent_s > self._rules.heartbeat_timeout_s and not self._in_view(registration):
                self._lose(registration, f"it was silent for {silent_s:.0f} s")
        if (late := self.alignments.late(now)) is not None:
            names = ", ".join(late.waiting_for) or "the coordinator"
            self._abort(late, f"the alignment took too long; it still waits for {names}", now)
        if self.wanted and self._starting.is_quorate(self.registry):
            self.alignments.make_way(now)
        may_call = self.alignments.may_call(self.registry, now)
        is_due = self._starting.is_due(
            self.registry, now, is_wanted=self.wanted, is_asked_for=self._retrain_seed is not None
        )
        if self.run is None and may_call and is_due:
            self._begin(now)
        elif self.run is None:
            self.alignments.tick(self.registry, now, is_wanted=self.wanted)
        if self.run is not None:
            self._advance(self.run, now)

    def directive(self, registration: Registration) -> Directive:
        """Return all that a client has to know now."""
        run, report = self.run, registration.report
        if registration.verdict is not None:
            return registration.verdict
        if report.run and report.run == self._last[0] and self._last[1] == FINISHED:
            return Finished(report.run)
        if run is None:
            alignments = self.alignments
            call = alignments.call_to(registration)
            return Gathering("", self.waiting_for, self.wanted, call, alignments.refused_dry_run)
        if run.membership is None and self._is_member(registration):
            return Gathering(run.id, (), True)
        if run.membership is not None and self._may_train(registration):
            if registration.client in run.membership.barred:
                return Stopped(run.id, run.membership.barred[registration.client])
            return replace(run.membership.directive(), left_out=registration.excluded)
        return Gathering("", (), registration.wants_run)

    @property
    def wanted(self) -> bool:
        """Whether somebody wants a run that has not started."""
        run_ids = (self.run.id if self.run else "", self._last[0])
        return self._retrain_seed is not None or any(
            r.available and r.wants_run and (not r.report.run or r.report.run not in run_ids)
            for r in self.registry.values()
        )

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has to come, or to do its part, before the run that is wanted can go on."""
        if self.run is not None:
            return self.run.membership.waiting_for if self.run.membership else ()
        if not self.wanted:
            return ()
        if self.alignments.is_for_run:
            return self.alignments.waiting_for
        return tuple(name for name in self.roster if not self._is_complete(name))

    @property
    def absent(self) -> tuple[str, ...]:
        """Who has to come before a run can start; who is there will submit when told."""
        there = {r.client for r in self.registry.values() if r.in_session}
        return () if self.run else tuple(name for name in self.roster if name not in there)

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """Where everybody who is in touch can be reached, in roster order."""
        registrations = [self.registry.get(name) for name in self.roster]
        return tuple((r.client, r.address) for r in registrations if r and r.in_session)

    def status(self, now: float) -> FederationStatus:
        """Return how the federation stands. Without a run, the seed is that of the next one.

        Who took part in the last run is told until the next one trains.
        """
        under_way = self.run.membership if self.run else None
        membership = under_way or self._last_membership
        return FederationStatus(
            run=self.run.id if self.run else "",
            training=under_way is not None,
            seed=self.run.seed if self.run else self._next_seed,
            wanted=self.wanted,
            waiting_for=self.waiting_for,
            clients=tuple(self._summary(name, now) for name in self.roster),
            last_run=self._last[0],
            last_outcome=self._last[1],
            num_samples=self._samples.total,
            generation=membership.view.generation if membership else 0,
            members=membership.view.clients if membership else (),
            departures=tuple(membership.departures) if membership else (),
            checkpoint=membership.complete if membership else 0,
        )

    def outcome(
        self, registration: Registration, alignment: str
    ) -> dict[str, ClientAlignment] | None:
        """Return a client's own rows in an alignment, or None while it is under way."""
        run = self.run
        if run and run.id == alignment and registration.client in run.alignments:
            return run.alignments[registration.client]
        return self.alignments.outcome(registration, alignment)

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it, but for a run's alignment."""
        run = self.run
        return {
            "registry": self.registry.snapshot(),
            "retrain_seed": self._retrain_seed,
            "last": list(self._last),
            "samples": {"total": self._samples.total, "by_client": dict(self._samples.by_client)},
            "run": run and run.snapshot(),
        }

    def restore(self, stored: Mapping[str, Any], results: Results, now: float) -> None:
        """Go on from a snapshot; everybody has some time to come back."""
        self.registry.restore(stored["registry"], now)
        self._retrain_seed = stored["retrain_seed"]
        self._last = (stored["last"][0], stored["last"][1])
        self._samples = SampleCounts(**stored["samples"])
        self._ticked_at = now
        if stored["run"] is not None:
            self.run = Run.restore(self.roster, self._rules, stored["run"], results)

    def _rest(self, now: float) -> None:
        self.registry.rest(now)
        if self.run is not None and self.run.membership is not None:
            self.run.membership.rest(now)

    def _begin(self, now: float) -> None:
        """Call all who could start a run to its alignment."""
        members = [self.registry[n] for n in self.roster if self._is_complete(n)]
        self._starting.begun()
        if any(registration.has_head for registration in members):
            self.alignments.call(Purpose.RUN, members, now)
            return
        self._retrain_seed = None
        for registration in members:
            registration.verdict = Stopped("", "no client has labels, so nothing can be learnt")

    def _advance(self, run: Run, now: float) -> None:
        """Start, change or end a run, as its members' reports have it."""
        if run.membership is None:
            registrations = [self.registry[name] for name in run.members]
            if all(r.report.run == run.id and r.report.state is State.READY for r in registrations):
                heads = tuple(r.client for r in registrations if r.has_head)
                members = tuple(r.as_member() for r in registrations)
                view = View(run.id, 1, members, run.seed, heads)
                run.membership = Membership(self.roster, self._rules, view)
                run.alignments = {}  # who is ready has its part on disk
                for registration in registrations:
                    registration.begins(now)
                self._retrain_seed = None
                self._on_event("started", run, "")
            return
        if run.membership.decide(self.registry, now, self._wall_clock()):
            view = run.membership.view
            for departure in run.membership.excluded:
                known = self.registry.get(departure.client)
                self._on_excluded(run, departure, known.identity if known else "")
            names = ", ".join(f"{m.client} from {m.next_step}" for m in view.members)
            self._on_event("changed", run, f"generation {view.generation} has {names}")
        if run.membership.has_finished(self.registry):
            for registration in self.registry.values():
                if registration.report.run == run.id:
                    registration.verdict = Finished(run.id)
            self._end(run, FINISHED)
            self._on_event("finished", run, "")
        elif run.membership.is_lost(self.registry):
            self._end(run, "all of its members came back with nothing of it")
            self._on_event("stopped", run, self._last[1])

    def _end(self, run: Run, outcome: str) -> None:
        self.run, self._last_membership = None, run.membership
        self._last = (run.id, outcome)

    def _abort(self, alignment: Alignment, reason: str, now: float) -> None:
        """End an alignment for everybody; with that of a run, the run."""
        self.alignments.abort(alignment, reason, now)
        if alignment.purpose is not Purpose.RUN:
            return
        self._retrain_seed = self._last_membership = None
        self._last = (alignment.id, reason)
        for name in alignment.members:
            if name in self.registry:
                self.registry[name].verdict = Stopped(alignment.id, reason)

    def _lose(self, registration: Registration, reason: str) -> None:
        """Forget a process. A run that has not started begins anew; one under way goes on."""
        if not self.knows(registration):
            return
        run, in_view = self.run, self._in_view(registration)
        self.registry.forget(registration)
        self._on_client("left", registration, reason)
        self.alignments.lost(registration, reason, self._ticked_at)
        if run is None or registration.client not in run.members or registration.verdict:
            return
        if run.membership is None:
            log.warning("lost %s: %s", registration.client, reason)
            self.run = None
            self._on_event("given up", run, f"lost {registration.client}: {reason}")
        elif in_view:
            run.membership.farewell(registration.client, reason)

    def _in_view(self, registration: Registration) -> bool:
        membership = self.run.membership if self.run else None
        return membership is not None and membership.view.has(
            registration.client, registration.incarnation
        )

    def _is_member(self, registration: Registration) -> bool:
        run = self.run
        return run is not None and registration.client in run.members and self.knows(registration)

    def _may_train(self, registration: Registration) -> bool:
        """Whether a client is a member of the run under way, or has been and may be again."""
        run = self.run
        return (
            run is not None
            and self._is_member(registration)
            and (self._in_view(registration) or registration.report.run == run.id)
        )

    def _is_complete(self, name: str) -> bool:
        registration = self.registry.get(name)
        return registration is not None and registration.complete

    def _summary(self, name: str, now: float) -> ClientSummary:
        registration = self.registry.get(name)
        num_samples = self._samples.by_client.get(name, 0)
        if registration is None:
            return ClientSummary(name, num_samples)
        return summarize(registration, self.directive(registration), num_samples, now)

    @property
    def _next_seed(self) -> int:
        return self._seed if self._retrain_seed is None else self._retrain_seed


def _refusal(client: str, peer: str, reason: str) -> str:
    if peer == client:
        return f"{client} cannot take part in the alignment: {reason}"
    return f"{client} refused {peer} in the alignment: {reason}"
