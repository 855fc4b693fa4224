"""What the coordinator decides: who is registered, when a run starts, and how it ends.

Plain state and plain rules: events come in as method calls that carry the time, decisions are read
with `directive` and `alignments`. No sockets, no clock of its own.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laser_vfl.coordinator.directives import (
    Directive,
    Finished,
    Gathering,
    StartRule,
    State,
    Stopped,
    View,
    ViewMember,
)
from laser_vfl.core.alignment import ClientAlignment, align, check_distinct, num_common
from laser_vfl.core.errors import DataError, MismatchError, NotRegistered, quoted

log = logging.getLogger(__name__)

TABLES = ("train", "test")

OWN_PAUSE_S = 2.0
"""After a pause of its own the coordinator has heard nobody, so it starts all timeouts afresh."""

Digests = npt.NDArray[np.uint8]


@dataclass
class Registration:
    """One process of a client, from its registration to the end of its session."""

    client: str
    nonce: str
    incarnation: int
    address: str
    has_head: bool
    seen_at: float
    session: int = 0
    in_session: bool = False
    state: State = State.JOINING
    run: str = ""
    next_step: int = 0
    busy_since: float = 0.0
    """Since when it has been at one step without waiting for anybody."""
    tables: dict[str, Digests] = field(default_factory=dict)
    verdict: Stopped | Finished | None = None

    @property
    def complete(self) -> bool:
        """Whether this client could start a run now."""
        return self.in_session and self.verdict is None and len(self.tables) == len(TABLES)


@dataclass
class Run:
    """One training run: fixed members, fixed alignment."""

    id: str
    members: tuple[str, ...]
    alignments: dict[str, dict[str, ClientAlignment]]
    view: View | None = None


class Federation:
    """All that the coordinator knows. One instance lives as long as the daemon."""

    def __init__(
        self,
        roster: Sequence[str],
        *,
        start: StartRule | None,
        heartbeat_timeout_s: float,
        step_timeout_s: float = math.inf,
        new_run_id: Callable[[], str],
        on_event: Callable[[str, Run, str], None] = lambda event, run, reason: None,
    ) -> None:
        self.roster = tuple(roster)
        self.run: Run | None = None
        self._start = start
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._step_timeout_s = step_timeout_s
        self._new_run_id = new_run_id
        self._on_event = on_event
        self._registrations: dict[str, Registration] = {}
        self._last_incarnation = 0
        self._quorum_since: float | None = None
        self._ticked_at = 0.0

    def register(
        self, client: str, *, nonce: str, address: str, has_head: bool, now: float
    ) -> Registration:
        """Admit a process as a client. The same nonce gets the same registration again."""
        if client not in self.roster:
            raise MismatchError(
                f"{quoted(client)} is not on the roster, which has {', '.join(self.roster)}",
                hint="correct `name`, or add it to `clients` in the coordinator's configuration",
            )
        known = self._registrations.get(client)
        if known and known.nonce == nonce:
            known.seen_at = now
            return known
        if known and known.in_session:
            raise MismatchError(
                f'a daemon named "{client}" is connected already, from {known.address}',
                hint="stop that one first, or correct `name`",
            )
        if known:
            self._lose(known, "it was started anew")
        self._last_incarnation += 1
        registration = Registration(client, nonce, self._last_incarnation, address, has_head, now)
        self._registrations[client] = registration
        log.info("%s registered from %s", client, address)
        return registration

    def find(self, client: str, incarnation: int) -> Registration:
        """Return the registration a message speaks for."""
        registration = self._registrations.get(client)
        if registration is None or registration.incarnation != incarnation:
            raise NotRegistered(f"the coordinator does not know this process as {quoted(client)}")
        return registration

    def submit(self, registration: Registration, table: str, digests: Digests, now: float) -> None:
        """Take the blinded ids of one table."""
        check_distinct(digests)
        self._check_apart(registration.client, table, digests)
        registration.tables[table] = digests
        self.tick(now)

    def heartbeat(
        self,
        registration: Registration,
        state: State,
        run: str,
        next_step: int,
        now: float,
        *,
        waiting: bool = False,
    ) -> None:
        """Take note of what a client is doing."""
        if (state, next_step) != (registration.state, registration.next_step) or waiting:
            registration.busy_since = now
        registration.seen_at = now
        registration.state = state
        registration.run = run
        registration.next_step = next_step
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
            elif registration.state is State.RUNNING and busy_s > self._step_timeout_s:
                self._lose(registration, f"it has been at one step for {busy_s:.0f} s")
        if self.run is None and self._may_start(now):
            self._begin()
        if self.run is not None:
            self._advance(self.run)

    def directive(self, registration: Registration) -> Directive:
        """Return all that a client has to know now."""
        if registration.verdict is not None:
            return registration.verdict
        run = self.run
        if run is not None and run.view is not None and registration.client in run.members:
            return run.view
        there = {r.client for r in self._registrations.values() if r.complete}
        waiting_for = tuple(name for name in self.roster if name not in there)
        is_member = run is not None and registration.client in run.members
        return Gathering(run.id, ()) if run and is_member else Gathering("", waiting_for)

    def alignments(
        self, registration: Registration
    ) -> tuple[str, dict[str, ClientAlignment]] | None:
        """Return the run and a client's alignment of each table, or None while there is no run."""
        if self.run is None or registration.client not in self.run.members:
            return None
        return self.run.id, self.run.alignments[registration.client]

    def _check_apart(self, client: str, table: str, digests: Digests) -> None:
        """Refuse a table that shares people with the other table of another client."""
        other_table = "test" if table == "train" else "train"
        for other in self._registrations.values():
            theirs = other.tables.get(other_table)
            if other.client == client or theirs is None:
                continue
            if common := num_common(digests, theirs):
                raise DataError(
                    f"{common} samples of the {table} table of {client} are in the {other_table} "
                    f"table of {other.client}",
                    hint="agree with that client on who is for training and who for testing",
                )

    def _may_start(self, now: float) -> bool:
        num_complete = sum(r.complete for r in self._registrations.values())
        if num_complete == len(self.roster):
            return True
        if self._start is None or num_complete < self._start.quorum:
            self._quorum_since = None
            return False
        if self._quorum_since is None:
            self._quorum_since = now
        return now - self._quorum_since >= self._start.after_s

    def _begin(self) -> None:
        members = tuple(name for name in self.roster if self._is_complete(name))
        if not any(self._registrations[name].has_head for name in members):
            for name in members:
                registration = self._registrations[name]
                registration.verdict = Stopped("", "no client has labels, so nothing can be learnt")
            return
        by_table: dict[str, list[ClientAlignment]] = {
            table: align(
                [
                    self._registrations[name].tables[table] if name in members else None
                    for name in self.roster
                ]
            )
            for table in TABLES
        }
        self.run = Run(
            id=self._new_run_id(),
            members=members,
            alignments={
                name: {table: by_table[table][self.roster.index(name)] for table in TABLES}
                for name in members
            },
        )
        self._quorum_since = None
        self._on_event("aligned", self.run, "")

    def _advance(self, run: Run) -> None:
        registrations = [self._registrations[name] for name in run.members]
        if any(registration.run != run.id for registration in registrations):
            return
        if run.view is None and all(r.state is State.READY for r in registrations):
            run.view = View(
                run.id,
                1,
                tuple(
                    ViewMember(r.client, r.incarnation, r.address, 0, r.has_head)
                    for r in registrations
                ),
            )
            self._on_event("started", run, "")
        elif run.view is not None and all(r.state is State.FINISHED for r in registrations):
            for registration in registrations:
                registration.verdict = Finished(run.id)
            self.run = None
            self._on_event("finished", run, "")

    def _lose(self, registration: Registration, reason: str) -> None:
        """Forget a client. A run under way ends; one that has not started begins anew."""
        if self._registrations.get(registration.client) is not registration:
            return
        del self._registrations[registration.client]
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
        self._on_event("stopped", run, stopped.reason)

    def _has_gone(self, registration: Registration) -> bool:
        return self._in_view(registration) and not registration.in_session

    def _in_view(self, registration: Registration) -> bool:
        run = self.run
        return run is not None and run.view is not None and registration.client in run.members

    def _is_complete(self, name: str) -> bool:
        registration = self._registrations.get(name)
        return registration is not None and registration.complete
