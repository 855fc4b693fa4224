"""The rules of the coordinator: registration, the start of a run, and its end.

Plain state and plain rules: events come in as method calls that carry the time, decisions are read
with `directive` and `alignments`. No sockets, no clock of its own.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from laser_vfl.coordinator.rules.alignment.alignment import Alignment, Results
from laser_vfl.coordinator.rules.alignment.alignment_queue import Alignments
from laser_vfl.coordinator.rules.directives import (
    Directive,
    Finished,
    Gathering,
    Publication,
    Report,
    RequestState,
    State,
    Stopped,
    View,
)
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.federation_status import (
    ClientSummary,
    FederationStatus,
    summarize,
)
from laser_vfl.coordinator.rules.membership.membership import Membership
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.publications import Publications
from laser_vfl.coordinator.rules.registration import NO_END, Registration
from laser_vfl.coordinator.rules.registry import Registry
from laser_vfl.coordinator.rules.run import EndedRun, Run
from laser_vfl.coordinator.rules.run_schedule import RunSchedule
from laser_vfl.coordinator.rules.run_start import RunStart
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.availability import SampleCounts, count_samples
from laser_vfl.core.errors import ContractError, LimitExceeded, MismatchError, NotReady

log = logging.getLogger(__name__)

SHOW_STATUS = "`laser-vfl status --config coordinator.yaml`"
CANCELLED = "an operator cancelled it before it began to train"


class Federation:
    """All that the coordinator knows. One instance lives as long as the daemon."""

    def __init__(
        self,
        registry: Registry,
        start: RunStart,
        alignments: Alignments,
        policy: MembershipPolicy,
        observer: FederationObserver,
        wall_clock: Callable[[], float] = lambda: 0.0,
        schedule: RunSchedule | None = None,
        publications: Publications | None = None,
    ) -> None:
        self.roster = registry.roster
        self.registry = registry
        self.alignments = alignments
        self.run: Run | None = None
        self._start = start
        self._schedule = schedule or RunSchedule(None)
        self._publications = publications or Publications(self.roster)
        self._policy = policy
        self._observer = observer
        self._wall_clock = wall_clock
        self._ticked_at = 0.0
        self._samples = SampleCounts()
        self._last = EndedRun()
        self._last_membership: Membership | None = None
        """Its members, if this coordinator process saw it end."""

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
            known.renew(address, now, has_head=has_head, wants_run=wants_run)
            return known
        if client in self.registry:
            replaced = self.registry[client]
            self._lose(replaced, replaced.excluded or "it was started anew")
        registration = self.registry.add(client, nonce, address, has_head, wants_run, now, identity)
        self._observer.client_changed("joined", registration, "")
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
        if alignment.purpose is not AlignmentPurpose.RUN:
            return
        self.run = Run(alignment.id, alignment.members, self._start.seed, results)
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
        if unreachable and accused and now - accused.seen_at > self._policy.silent_s:
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
        self.alignments.request_dry_run(registration.client)

    def heartbeat(self, registration: Registration, report: Report, now: float) -> None:
        """Take note of what a client is doing."""
        membership = self.run.membership if self.run else None
        is_of_run = membership is not None and (
            report.run == membership.view.run or self._in_view(registration)
        )
        if membership and is_of_run and report.stopped > membership.view.generation:
            raise ContractError("a client cannot have stopped a generation that there is not yet")
        end = membership.end(self.registry) if membership else NO_END
        registration.hear(report, now, end)
        self.tick(now)
        is_ahead = self.run is not None and report.next_run == self.run.id
        if not is_ahead:  # of a run that has not ended it says that at its end
            self._publications.heard(registration.client, report.next_run, holds=report.holds)

    def gone(self, registration: Registration, reason: str, problem: str = "") -> None:
        """A client takes leave for good; `problem` says what it could not do, if that is why."""
        self._lose(registration, reason or "it stopped", problem)

    def connected(self, registration: Registration, now: float) -> int:
        """A session opened; returns its number. A newer session replaces an older one."""
        return registration.session_opened(now)

    def disconnected(self, registration: Registration, session: int, now: float) -> None:
        """A session broke. Before a run that is its end; in a run the client may come back."""
        if session != registration.session:
            return
        registration.session_ended(now)
        if not self._in_view(registration):
            self._lose(registration, "its session ended")

    def retrain(self, seed: int | None) -> int:
        """Ask for a run of everybody; returns its seed. The request stays until a run starts."""
        self._check_no_run()
        return self._start.request(seed)

    def approve(self, client: str, seed: int | None) -> int:
        """Let the run start that a client asks for; returns its seed."""
        self._check_no_run()
        self._find_request(client)
        log.info("the run that %s asks for was approved", client)
        return self._start.approve(client, seed)

    def reject(self, client: str) -> None:
        """Tell a client that the run that it asks for does not start. It may ask again."""
        self._find_request(client).reject()
        log.info("the run that %s asks for was rejected", client)

    def cancel(self, now: float) -> str:
        """Cancel the run that is asked for or aligned; returns its id, if it has one by now.

        Its clients are not concluded: they stay, and wait until an operator asks for a run.
        """
        run, alignment = self.run, self.alignments.current
        if run is not None and run.membership is not None:
            raise MismatchError(
                f"run {run.id} trains already, and only a run that has not begun is cancelled",
                hint=f"wait for its end; {SHOW_STATUS} shows how far it is",
            )
        if run is None and not self.alignments.is_for_run and not self.wanted:
            raise MismatchError(
                "no run is asked for or aligned",
                hint=f"{SHOW_STATUS} shows what is under way",
            )
        self._start.cancel()
        id = ""
        if run is not None:
            self.run, id = None, run.id
            self._observer.happened("given up", run, CANCELLED)
        elif self.alignments.is_for_run and alignment is not None:
            id = alignment.id
            self.alignments.cancel(alignment, CANCELLED)
        if id:
            self._last_membership, self._last = None, EndedRun(id, reason=CANCELLED)
        log.info("the next run was cancelled")
        self.tick(now)
        return id

    def tick(self, now: float) -> None:
        """Do whatever is due: drop silent clients, start a run, change or end it."""
        if now - self._ticked_at > self._policy.own_pause_s:
            self._rest(now)
        self._ticked_at = now
        for registration in list(self.registry.values()):
            silent_s = now - registration.seen_at
            if silent_s > self._policy.heartbeat_timeout_s and not self._in_view(registration):
                self._lose(registration, f"it was silent for {silent_s:.0f} s")
        if (late := self.alignments.late(now)) is not None:
            names = ", ".join(late.waiting_for) or "the coordinator"
            if late.purpose is AlignmentPurpose.RUN:
                for name in late.waiting_for:
                    self._start.failed(name, "it did not do its part in time", now)
            self._abort(late, f"the alignment took too long; it still waits for {names}", now)
        self._ask_when_due()
        if self.wanted and self._start.is_quorate(self.registry):
            self.alignments.make_way(now)
        may_call = self.alignments.may_call(self.registry, now)
        is_due = self._start.is_due(self.registry, now, is_wanted=self.wanted)
        if self.run is None and may_call and is_due:
            self._begin(now)
        elif self.run is None:
            self.alignments.tick(self.registry, now, is_wanted=self.wanted)
        if self.run is not None:
            self._advance(self.run, now)

    def directive(self, registration: Registration) -> Directive:
        """Return the directive to a client, as of now."""
        run, report = self.run, registration.report
        if registration.verdict is not None:
            return registration.verdict
        if report.run and report.run == self._last.id and self._last.has_finished:
            return Finished(report.run)
        if run is None:
            alignments = self.alignments
            call = alignments.call_to(registration)
            return Gathering(
                "",
                self.waiting_for,
                self.wanted,
                call,
                alignments.refused_dry_run,
                self._own_request(registration),
            )
        if run.membership is None and self._is_member(registration):
            return Gathering(run.id, (), True)
        if run.membership is not None and self._may_train(registration):
            if registration.client in run.membership.barred:
                return Stopped(run.id, run.membership.barred[registration.client])
            return replace(run.membership.directive(), left_out=registration.excluded)
        if self._start.has_trained:
            return Gathering("", (), False, own_request=self._own_request(registration))
        return Gathering("", (), registration.wants_run)

    @property
    def publication(self) -> Publication:
        """The live runs, and the run that is held back; all clients are told."""
        return self._publications.state

    @property
    def wanted(self) -> bool:
        """Whether a run is to start that has not started: somebody wants the first, or any is
        requested."""
        by_itself = not self._start.needs_operator
        return self._start.is_requested or (by_itself and bool(self._requesting))

    @property
    def requests(self) -> tuple[str, ...]:
        """The clients that ask for a run which an operator has to approve."""
        if self._start.is_requested or not self._start.needs_operator:
            return ()
        return tuple(name for name in self._requesting if not self.registry[name].rejected)

    @property
    def _requesting(self) -> tuple[str, ...]:
        """The clients that want a run, and are not in one nor could return to one."""
        run_ids = (self.run.id if self.run else "", self._last.id)
        there = (self.registry.get(name) for name in self.roster)
        return tuple(
            r.client
            for r in there
            if r and r.available and r.wants_run
            if not r.report.run or r.report.run not in run_ids
        )

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The clients that have to come, or to do their part, before the wanted run can go on."""
        if self.run is not None:
            membership = self.run.membership
            return membership.waiting_for if membership else self._unready(self.run)
        if not self.wanted:
            return ()
        if self.alignments.is_for_run:
            return self.alignments.waiting_for
        ready = {r.client for r in self._start.ready(self.registry, self._ticked_at)}
        return tuple(name for name in self.roster if name not in ready)

    @property
    def absent(self) -> tuple[str, ...]:
        """The clients that have to come before a run can start; those that are there are called."""
        there = {r.client for r in self.registry.values() if r.in_session}
        return () if self.run else tuple(name for name in self.roster if name not in there)

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """The addresses of all connected clients, in roster order."""
        registrations = [self.registry.get(name) for name in self.roster]
        return tuple((r.client, r.address) for r in registrations if r and r.in_session)

    def status(self, now: float) -> FederationStatus:
        """Return the status of the federation. Without a run, the seed is that of the next one.

        The members of the last run are told until the next one trains.
        """
        under_way = self.run.membership if self.run else None
        membership = under_way or self._last_membership
        return FederationStatus(
            run=self.run.id if self.run else "",
            training=under_way is not None,
            seed=self.run.seed if self.run else self._start.seed,
            wanted=self.wanted,
            waiting_for=self.waiting_for,
            clients=tuple(self._summary(name, now) for name in self.roster),
            last_run=self._last.id,
            last_outcome=self._last.outcome,
            num_samples=self._samples.total,
            generation=membership.view.generation if membership else 0,
            members=membership.view.clients if membership else (),
            departures=tuple(membership.departures) if membership else (),
            checkpoint=membership.complete if membership else 0,
            requests=self.requests,
            next_run_at=self._schedule.next_at if self._start.has_trained else None,
            held_run=self.publication.held_run,
            held_by=self.publication.held_by,
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
            **self._start.snapshot(),
            "schedule": self._schedule.counted_from,
            "publication": self._publications.snapshot(),
            **self._last.snapshot(),
            "samples": {"total": self._samples.total, "by_client": dict(self._samples.by_client)},
            "run": run and run.snapshot(),
        }

    def restore(self, stored: Mapping[str, Any], results: Results, now: float) -> None:
        """Go on from a snapshot; everybody has some time to come back."""
        self.registry.restore(stored["registry"], now)
        self._last = EndedRun.restore(stored)
        self._start.restore(stored, has_trained=self._last.has_finished)
        if stored.get("schedule") is not None:
            self._schedule.restart(stored["schedule"])
        if "publication" in stored:
            self._publications.restore(stored["publication"])
        self._samples = SampleCounts(**stored["samples"])
        self._ticked_at = now
        if stored["run"] is not None:
            self.run = Run.restore(self.roster, self._policy, stored["run"], results)

    def _rest(self, now: float) -> None:
        self.registry.rest(now)
        if self.run is not None:
            self.run.rest(now)

    def _check_no_run(self) -> None:
        if self.run is not None:
            raise MismatchError(
                f"a run is under way: {self.run.id}",
                hint=f"wait for its end; {SHOW_STATUS} shows how far it is",
            )

    def _find_request(self, client: str) -> Registration:
        """Return the registration of a client that asks for a run which has to be approved."""
        self.registry.check_listed(client)
        if client not in self.requests:
            who = ", ".join(self.requests) or "nobody does"
            raise MismatchError(
                f"{client} asks for no run that has to be approved; who does: {who}",
                hint="ask for a run of everybody: `laser-vfl retrain --config coordinator.yaml`",
            )
        return self.registry[client]

    def _own_request(self, registration: Registration) -> RequestState:
        """Return what a client hears of the run that it asks for."""
        if registration.rejected:
            return RequestState.REJECTED
        return RequestState.PENDING if registration.client in self.requests else RequestState.NONE

    def _ask_when_due(self) -> None:
        """Ask for a run if the schedule says so. It has no part in a federation's first."""
        is_idle = self.run is None and not self.alignments.is_for_run
        if not is_idle or not self._start.has_trained or self._start.is_requested:
            return
        wall_now = self._wall_clock()
        if self._schedule.is_due(wall_now):
            self._schedule.restart(wall_now)
            log.info("a run is due by the schedule")
            self._start.request(None)

    def _begin(self, now: float) -> None:
        """Call all clients that could start a run to its alignment."""
        members = self._start.ready(self.registry, now)
        self._start.called()
        if any(registration.has_head for registration in members):
            self.alignments.call(AlignmentPurpose.RUN, members, now)
            return
        self._start.withdraw()
        for registration in members:
            registration.conclude(Stopped("", "no client has labels, so nothing can be learnt"))

    def _advance(self, run: Run, now: float) -> None:
        """Start, change or end a run, as its members' reports have it."""
        if run.membership is None:
            registrations = [self.registry[name] for name in run.members]
            if unready := self._unready(run):
                self._give_up_on(unready, run, now)
            else:
                heads = tuple(r.client for r in registrations if r.has_head)
                members = tuple(r.as_member() for r in registrations)
                view = View(run.id, 1, members, run.seed, heads)
                run.start(Membership(self.roster, self._policy, view))
                for registration in registrations:
                    registration.begins(now)
                self._start.started()
                self._schedule.restart(self._wall_clock())
                self._observer.happened("started", run, "")
            return
        if run.membership.decide(self.registry, now, self._wall_clock()):
            view = run.membership.view
            for departure in run.membership.excluded:
                known = self.registry.get(departure.client)
                self._observer.member_excluded(run, departure, known.identity if known else "")
            names = ", ".join(f"{m.client} from {m.next_step}" for m in view.members)
            self._observer.happened("changed", run, f"generation {view.generation} has {names}")
        if run.membership.has_finished(self.registry):
            there = [r for r in self.registry.values() if r.report.run == run.id]
            for registration in there:
                registration.conclude(Finished(run.id))
            held_by = [r.client for r in there if r.report.holds and r.report.next_run == run.id]
            self._publications.finished(run.id, run.members, held_by)
            self._end(run, EndedRun(run.id, has_finished=True))
            self._start.finished()
            self._observer.happened("finished", run, "")
        elif run.membership.is_lost(self.registry):
            reason = "all of its members came back with nothing of it"
            self._end(run, EndedRun(run.id, reason=reason))
            self._observer.happened("stopped", run, reason)

    def _unready(self, run: Run) -> tuple[str, ...]:
        """Return the clients that were aligned for a run and are not ready for its first step."""
        there = {name: self.registry.get(name) for name in run.members}
        return tuple(
            name
            for name, r in there.items()
            if r is None or r.report.run != run.id or r.report.state is not State.READY
        )

    def _give_up_on(self, unready: tuple[str, ...], run: Run, now: float) -> None:
        """Give up a run that has waited too long for clients; they are not called again at once."""
        if run.waits(now) <= self._policy.ready_s:
            return
        for name in unready:
            self._start.failed(name, "it did not get ready for the run in time", now)
        reason = f"{', '.join(unready)} did not get ready in {self._policy.ready_s:g} s"
        log.warning("%s", reason)
        self.run = None
        self._observer.happened("given up", run, reason)

    def _end(self, run: Run, ended: EndedRun) -> None:
        self.run, self._last_membership, self._last = None, run.membership, ended

    def _abort(self, alignment: Alignment, reason: str, now: float) -> None:
        """End an alignment for everybody; with that of a run, the run."""
        self.alignments.abort(alignment, reason, now)
        if alignment.purpose is not AlignmentPurpose.RUN:
            return
        self._start.withdraw()
        self._last_membership = None
        self._last = EndedRun(alignment.id, reason=reason)
        for name in alignment.members:
            if name in self.registry:
                self.registry[name].conclude(Stopped(alignment.id, reason))

    def _lose(self, registration: Registration, reason: str, problem: str = "") -> None:
        """Forget a process. A run that has not started begins anew; one under way goes on.

        A client that leaves because of a problem of its own is not called again at once.
        """
        if not self.knows(registration):
            return
        run, in_view = self.run, self._in_view(registration)
        self.registry.forget(registration)
        self._observer.client_changed("left", registration, reason)
        if self._is_called_to_run(registration) and problem:
            self._start.failed(registration.client, problem, self._ticked_at)
        elif self._is_called_to_run(registration):
            self._start.left(registration.client, self._ticked_at)
        self.alignments.lost(registration, reason, self._ticked_at)
        if run is None or registration.client not in run.members or registration.verdict:
            return
        if run.membership is None:
            log.warning("lost %s: %s", registration.client, reason)
            self.run = None
            self._observer.happened("given up", run, f"lost {registration.client}: {reason}")
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

    def _is_called_to_run(self, registration: Registration) -> bool:
        """Whether a run that has not started yet, or its alignment, counts on this client."""
        if self.run is not None:
            return self.run.membership is None and registration.client in self.run.members
        return self.alignments.is_for_run and self.alignments.call_to(registration) is not None

    def _summary(self, name: str, now: float) -> ClientSummary:
        registration = self.registry.get(name)
        num_samples = self._samples.by_client.get(name, 0)
        if registration is None:
            summary = ClientSummary(name, num_samples)
        else:
            summary = summarize(registration, self.directive(registration), num_samples, now)
        return replace(
            summary,
            problem=summary.problem or self._start.problem_of(name),
            held_back_s=self._start.held_back_s(name, now),
        )


def _refusal(client: str, peer: str, reason: str) -> str:
    if peer == client:
        return f"{client} cannot take part in the alignment: {reason}"
    return f"{client} refused {peer} in the alignment: {reason}"
