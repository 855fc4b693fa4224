"""What the coordinator decides: who is registered, when a run starts, and how it ends.

Plain state and plain rules: events come in as method calls that carry the time, decisions are read
with `directive` and `alignments`. No sockets, no clock of its own.
"""

import logging
import math
from collections.abc import Callable, MutableMapping, Sequence

from laser_vfl.coordinator.alignment import Alignment, Results
from laser_vfl.coordinator.alignments import Alignments
from laser_vfl.coordinator.directives import (
    Directive,
    Finished,
    Gathering,
    StartRule,
    State,
    Stopped,
    View,
)
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.run import Run
from laser_vfl.coordinator.status import (
    ClientSummary,
    FederationStatus,
    SampleCounts,
    count_samples,
    summarize,
)
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import (
    ContractError,
    MismatchError,
    NameTaken,
    NotReady,
    NotRegistered,
    quoted,
)
from laser_vfl.core.purpose import Purpose, Scheme

log = logging.getLogger(__name__)

MAX_SEED = 2**63 - 1

OWN_PAUSE_S = 2.0
"""After a pause of its own the coordinator has heard nobody, so it starts all timeouts afresh."""

SILENT_S = 3.0
"""Who has been silent for so long, and cannot be reached by a peer either, is gone."""


class Federation:
    """All that the coordinator knows. One instance lives as long as the daemon."""

    def __init__(
        self,
        roster: Sequence[str],
        *,
        start: StartRule | None,
        heartbeat_timeout_s: float,
        step_timeout_s: float = math.inf,
        seed: int,
        new_seed: Callable[[], int],
        new_run_id: Callable[[], str],
        on_event: Callable[[str, Run | Alignment, str], None] = lambda event, run, reason: None,
        scheme: Scheme = "ecdh",
        members_of: MutableMapping[str, tuple[str, ...]] | None = None,
        alignment_timeout_s: float = math.inf,
    ) -> None:
        self.roster = tuple(roster)
        self.run: Run | None = None
        self.alignments = Alignments(
            self.roster, scheme, new_run_id, on_event, members_of, alignment_timeout_s
        )
        self._start = start
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._step_timeout_s = step_timeout_s
        self._seed = seed
        self._new_seed = new_seed
        self._on_event = on_event
        self._registrations: dict[str, Registration] = {}
        self._last_incarnation = 0
        self._quorum_since: float | None = None
        self._ticked_at = 0.0
        self._retrain_seed: int | None = None
        """Somebody asked for a run with this seed, and it has not started yet."""
        self._samples = SampleCounts()
        self._last = ("", "")
        """The last run that ended, and how."""

    def register(
        self,
        client: str,
        *,
        nonce: str,
        address: str,
        has_head: bool,
        wants_run: bool,
        now: float,
    ) -> Registration:
        """Admit a process as a client. The same nonce gets the same registration until a verdict.

        After a verdict it gets a fresh one, though its old session may still be open.
        """
        if client not in self.roster:
            raise MismatchError(
                f"{quoted(client)} is not on the roster, which has {', '.join(self.roster)}",
                hint="correct `name`, or add it to `clients` in the coordinator's configuration",
            )
        known = self._registrations.get(client)
        is_same = known is not None and known.nonce == nonce
        if known and is_same and known.verdict is None:
            known.address, known.has_head, known.wants_run = address, has_head, wants_run
            known.seen_at = now
            return known
        if known and not is_same and known.in_session:
            raise NameTaken(
                f'a daemon named "{client}" is connected already, from {known.address}',
                hint="stop that one first, or correct `name`",
            )
        if known:
            self._lose(known, "it was started anew")
        self._last_incarnation += 1
        registration = Registration(
            client, nonce, self._last_incarnation, address, has_head, wants_run, now
        )
        self._registrations[client] = registration
        log.info("%s registered from %s", client, address)
        return registration

    def knows(self, registration: Registration) -> bool:
        """Whether this is still the client's registration, neither lost nor renewed."""
        return self._registrations.get(registration.client) is registration

    def find(self, client: str, incarnation: int) -> Registration:
        """Return the registration a message speaks for."""
        registration = self._registrations.get(client)
        if registration is None or registration.incarnation != incarnation:
            raise NotRegistered(f"the coordinator does not know this process as {quoted(client)}")
        return registration

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
        accused = self._registrations.get(peer) if peer in current.members else None
        if unreachable and accused and now - accused.seen_at > SILENT_S:
            self._lose(accused, f"{registration.client} cannot reach it, and it is silent")
            return
        self._abort(current, _refusal(registration.client, peer, reason), now)

    def dry_run(self, registration: Registration) -> None:
        """Align everybody who is there as soon as nothing else is under way."""
        if self.run is not None or self.alignments.is_for_run:
            raise NotReady("a run is under way", hint="ask again when it has finished")
        log.info("%s asked for a dry run of the alignment", registration.client)
        self.alignments.dry_run_for.add(registration.client)

    def heartbeat(
        self,
        registration: Registration,
        state: State,
        run: str,
        next_step: int,
        now: float,
        *,
        waiting: bool = False,
        model_run: str = "",
        num_steps: int = 0,
        prepared: bool = False,
        num_newcomers: int = 0,
        naming: str = "",
    ) -> None:
        """Take note of what a client is doing."""
        has_moved = (state, next_step) != (registration.state, registration.next_step)
        if has_moved or waiting or registration.waiting:
            registration.busy_since = now
        registration.seen_at = now
        registration.waiting = waiting
        registration.state = state
        registration.run = run
        registration.next_step = next_step
        registration.model_run = model_run
        registration.num_steps = num_steps
        registration.prepared = prepared
        registration.num_newcomers = num_newcomers
        registration.naming = naming
        self.tick(now)

    def stopped(self, registration: Registration, reason: str) -> None:
        """A client cannot go on, or leaves. Who is gone already is the one to blame."""
        gone = next((r for r in self._registrations.values() if self._has_gone(r)), None)
        if gone is not None and gone is not registration and self._in_view(registration):
            self._lose(gone, "its connection was cut")
        else:
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
        registration.seen_at = now
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
        """Do whatever is due: drop who is silent, start a run, issue a view, end a run."""
        if now - self._ticked_at > OWN_PAUSE_S:
            for registration in self._registrations.values():
                registration.seen_at = registration.busy_since = now
        self._ticked_at = now
        for registration in list(self._registrations.values()):
            silent_s = now - registration.seen_at
            busy_s = now - registration.busy_since
            if silent_s > self._heartbeat_timeout_s:
                self._lose(registration, f"it was silent for {silent_s:.0f} s")
            elif registration.is_computing and busy_s > self._step_timeout_s:
                self._lose(registration, f"it has been at one step for {busy_s:.0f} s")
            elif self._is_elsewhere(registration) and busy_s > self._heartbeat_timeout_s:
                self._lose(registration, "it left the run")
        if (late := self.alignments.late(now)) is not None:
            names = ", ".join(late.waiting_for) or "the coordinator"
            self._abort(late, f"the alignment took too long; it still waits for {names}", now)
        if self.wanted and self._is_quorate:
            self.alignments.make_way(now)
        may_call = self.alignments.may_call(self._registrations, now)
        if self.run is None and may_call and self._may_start(now):
            self._begin(now)
        elif self.run is None:
            self.alignments.tick(self._registrations, now, is_wanted=self.wanted)
        if self.run is not None:
            self._advance(self.run)

    def directive(self, registration: Registration) -> Directive:
        """Return all that a client has to know now."""
        if registration.verdict is not None:
            return registration.verdict
        if self.run is None:
            call = self.alignments.call_to(registration)
            return Gathering("", self.waiting_for, self.wanted, call)
        if not self._is_member(registration):
            return Gathering("", (), registration.wants_run)
        return self.run.view or Gathering(self.run.id, (), True)

    @property
    def wanted(self) -> bool:
        """Whether somebody wants a run that has not started."""
        return self._retrain_seed is not None or any(
            r.available and r.wants_run and not self._in_view(r)
            for r in self._registrations.values()
        )

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has to come, or to do its part in the alignment, before the wanted run can start."""
        if self.run is not None or not self.wanted:
            return ()
        if self.alignments.is_for_run:
            return self.alignments.waiting_for
        return tuple(name for name in self.roster if not self._is_complete(name))

    @property
    def absent(self) -> tuple[str, ...]:
        """Who has to come before a run can start; who is there will submit when told."""
        there = {r.client for r in self._registrations.values() if r.in_session}
        return () if self.run else tuple(name for name in self.roster if name not in there)

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """Where everybody who is in touch can be reached, in roster order."""
        registrations = [self._registrations.get(name) for name in self.roster]
        return tuple((r.client, r.address) for r in registrations if r and r.in_session)

    def status(self, now: float) -> FederationStatus:
        """Return how the federation stands. Without a run, the seed is that of the next one."""
        return FederationStatus(
            run=self.run.id if self.run else "",
            training=self.run is not None and self.run.view is not None,
            seed=self.run.seed if self.run else self._next_seed,
            wanted=self.wanted,
            waiting_for=self.waiting_for,
            clients=tuple(self._summary(name, now) for name in self.roster),
            last_run=self._last[0],
            last_outcome=self._last[1],
            num_samples=self._samples.total,
        )

    def outcome(
        self, registration: Registration, alignment: str
    ) -> dict[str, ClientAlignment] | None:
        """Return a client's own rows in an alignment, or None while it is under way."""
        if self.run is not None and self.run.id == alignment and self._is_member(registration):
            return self.run.alignments[registration.client]
        return self.alignments.outcome(registration, alignment)

    def _may_start(self, now: float) -> bool:
        complete = [r for r in self._registrations.values() if r.complete]
        wanted = self.wanted
        if wanted and len(complete) == len(self.roster):
            return True
        if not wanted or self._start is None or len(complete) < self._start.quorum:
            self._quorum_since = None
            return False
        if self._quorum_since is None:
            self._quorum_since = now
        has_wisher = self._retrain_seed is not None or any(r.wants_run for r in complete)
        return has_wisher and now - self._quorum_since >= self._start.after_s

    @property
    def _is_quorate(self) -> bool:
        """Whether so many are there that a run could start, once they have read their tables."""
        num_there = sum(r.available for r in self._registrations.values())
        return num_there >= (self._start.quorum if self._start else len(self.roster))

    def _begin(self, now: float) -> None:
        """Call all who could start a run to its alignment."""
        members = [self._registrations[n] for n in self.roster if self._is_complete(n)]
        self._quorum_since = None
        if any(registration.has_head for registration in members):
            self.alignments.call(Purpose.RUN, members, now)
            return
        self._retrain_seed = None
        for registration in members:
            registration.verdict = Stopped("", "no client has labels, so nothing can be learnt")

    def _advance(self, run: Run) -> None:
        registrations = [self._registrations[name] for name in run.members]
        if any(registration.run != run.id for registration in registrations):
            return
        if run.view is None and all(r.state is State.READY for r in registrations):
            run.view = View(run.id, 1, tuple(r.as_member() for r in registrations), run.seed)
            self._retrain_seed = None
            self._on_event("started", run, "")
        elif run.view is not None and all(r.state is State.FINISHED for r in registrations):
            for registration in registrations:
                registration.verdict = Finished(run.id)
            self.run = None
            self._last = (run.id, "finished")
            self._on_event("finished", run, "")

    def _abort(self, alignment: Alignment, reason: str, now: float) -> None:
        """End an alignment for everybody; with that of a run, the run."""
        self.alignments.abort(alignment, reason, now)
        if alignment.purpose is not Purpose.RUN:
            return
        self._retrain_seed = None
        self._last = (alignment.id, reason)
        for name in alignment.members:
            if name in self._registrations:
                self._registrations[name].verdict = Stopped(alignment.id, reason)

    def _lose(self, registration: Registration, reason: str) -> None:
        """Forget a client. A run under way ends; one that has not started begins anew."""
        if not self.knows(registration):
            return
        del self._registrations[registration.client]
        self.alignments.lost(registration, reason, self._ticked_at)
        run = self.run
        if run is None or registration.client not in run.members or registration.verdict:
            return
        log.warning("lost %s: %s", registration.client, reason)
        self.run = None
        if run.view is None:
            self._on_event("given up", run, f"lost {registration.client}: {reason}")
            return
        stopped = Stopped(run.id, f"lost {registration.client}: {reason}")
        for name in run.members:
            if name in self._registrations:
                self._registrations[name].verdict = stopped
        self._last = (run.id, stopped.reason)
        self._on_event("stopped", run, stopped.reason)

    def _has_gone(self, registration: Registration) -> bool:
        return self._in_view(registration) and not registration.in_session

    def _in_view(self, registration: Registration) -> bool:
        return self._is_member(registration) and self.run is not None and self.run.view is not None

    def _is_member(self, registration: Registration) -> bool:
        run = self.run
        return run is not None and registration.client in run.members and self.knows(registration)

    def _is_elsewhere(self, registration: Registration) -> bool:
        """Whether a member of the view says that it does not take part in this run."""
        run = self.run
        return run is not None and self._in_view(registration) and registration.run != run.id

    def _is_complete(self, name: str) -> bool:
        registration = self._registrations.get(name)
        return registration is not None and registration.complete

    def _summary(self, name: str, now: float) -> ClientSummary:
        registration = self._registrations.get(name)
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
