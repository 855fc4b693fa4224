"""A federation in a play: real rules, a clock that is told the time, clients that behave."""

import hashlib
import json
import math

import numpy as np

from laser_vfl.coordinator.rules.alignment.alignment import group_lists
from laser_vfl.coordinator.rules.alignment.alignment_queue import Alignments
from laser_vfl.coordinator.rules.directives import Commitment, LinkReport, Report, State, Training
from laser_vfl.coordinator.rules.federation import Federation
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.policies import AlignmentPolicy, MembershipPolicy
from laser_vfl.coordinator.rules.registry import Registry
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.coordinator.rules.run_start import RunStart
from laser_vfl.core.alignment_purpose import TABLES
from laser_vfl.transport.protocol import MAX_POINTS, MAX_TOTAL_PEOPLE

SEED = 7

TIMEOUT_S = 10.0
RESTART_GRACE_S = 30.0

TAKEN = "taken"
PHASES = ["called", "committed", "submitted", TAKEN]


def digests(*samples):
    table = np.zeros((len(samples), 32), dtype=np.uint8)
    table[:, 0] = samples
    return table


class Told(FederationObserver):
    """Passes on to a play what happens."""

    def __init__(self, play):
        self._play = play

    def happened(self, event, subject, reason):
        self._play.note(event, subject, reason)
        self._play.observer.happened(event, subject, reason)

    def client_changed(self, event, registration, reason):
        self._play.observer.client_changed(event, registration, reason)

    def member_excluded(self, run, departure, identity):
        self._play.observer.member_excluded(run, departure, identity)


class Play:
    """A federation with a clock, and clients that do what real ones do.

    While `is_obliging`, everybody who is called to an alignment does its part at once.
    """

    def __init__(
        self,
        *roster,
        start=None,
        step_timeout_s=math.inf,
        quorum=1,
        on_lost="continue",
        scheme="ecdh",
        members_of=None,
        is_obliging=True,
        alignment_timeout_s=math.inf,
        max_people=MAX_POINTS,
        max_total_people=MAX_TOTAL_PEOPLE,
        schedule=lambda: None,
        max_slowdown=MembershipPolicy.max_slowdown,
    ):
        self.now = 1000.0
        self.events = []
        self.seeds = {}
        self.sessions = {}
        self.clients = {}
        self.is_obliging = is_obliging
        self.cuts = set()
        """Pairs of clients between which no stream is up."""
        self.stopped = {}
        """Up to which generation each process has stopped."""
        self.says = {}
        """What every heartbeat of a client says besides, while it is the same registration."""
        self.tables = {}
        """The people in each table of a registration that has read them."""
        numbers = iter(range(1, 10_000))
        seeds = iter(range(1001, 1100))
        self.observer = FederationObserver()
        """Is told of everything, besides `note`."""
        policy = MembershipPolicy(
            quorum=quorum,
            on_lost=on_lost,
            heartbeat_timeout_s=TIMEOUT_S,
            step_timeout_s=step_timeout_s,
            restart_grace_s=RESTART_GRACE_S,
            max_slowdown=max_slowdown,
        )
        aligning = AlignmentPolicy(alignment_timeout_s, max_people, max_total_people)
        told = Told(self)
        self._found = lambda: Federation(
            Registry(roster, policy),
            RunStart(roster, start, aligning, SEED, lambda: next(seeds)),
            Alignments(roster, scheme, aligning, lambda: f"run-{next(numbers)}", told, members_of),
            policy,
            told,
            lambda: self.now,
            schedule(),
        )
        self.federation = self._found()
        self.federation.tick(self.now)

    def note(self, event, subject, reason):
        if isinstance(subject, Run):
            self.seeds[subject.id] = subject.seed
        elif event in ("aligning", "aligned"):
            reason = ", ".join(filter(None, (subject.purpose.value, reason)))
        self.events.append((event, subject.id, reason))

    @property
    def event_names(self):
        return [event for event, _, _ in self.events]

    def register(self, name, *, nonce=None, has_head=True, wants_run=True, address=None):
        return self.federation.register(
            name,
            nonce=nonce or f"nonce-{name}",
            address=address or f"{name}:1",
            has_head=has_head,
            wants_run=wants_run,
            now=self.now,
        )

    def connect(self, name):
        registration = self.clients[name]
        self.sessions[name] = self.federation.connected(registration, self.now)
        self.beat(name)

    def come(self, name, **keys):
        """Register and open a session."""
        self.clients[name] = self.register(name, **keys)
        self.connect(name)
        return self.clients[name]

    def prepare(self, name, *samples, test=()):
        """Read the tables; every heartbeat says so from now on."""
        self.tables[self.clients[name].incarnation] = {
            "train": digests(*samples),
            "test": digests(*test),
            "serve": digests(*sorted({*samples, *test})),
        }
        self.beat(name)

    def join(self, name, *samples, **keys):
        """Register, open a session, read the tables."""
        self.come(name, **keys)
        self.prepare(name, *samples)
        return self.clients[name]

    def idle(self, *names):
        """Come, or renew after a verdict, with a model, and request no run."""
        for name in names:
            self.come(name, wants_run=False)

    def serve(self, name, **says):
        """Say in every heartbeat from now on which model is served, and how people are named."""
        self.says.setdefault(self.clients[name].incarnation, {}).update(says)
        self.beat(name)

    def beat(self, *names, state=State.JOINING, run="", next_step=0, **keys):
        for name in names:
            client = self.clients[name]
            says = {"prepared": client.incarnation in self.tables}
            says |= self.says.get(client.incarnation, {}) | keys
            report = Report(state=state, run=run, next_step=next_step, **says)
            self.federation.heartbeat(client, report, self.now)
            self.act()

    def ready(self, *names, run="run-1"):
        self.beat(*names, state=State.READY, run=run)

    @property
    def membership(self):
        return self.federation.run.membership

    @property
    def view(self):
        return self.membership.view

    @property
    def stop(self):
        """The generation that members are told to stop; 0 while they are not."""
        return self.membership.directive().stop

    @property
    def departures(self):
        return [(gone.client, gone.reason) for gone in self.membership.departures]

    def train(self, *names, **says):
        """Be at a step of the run under way."""
        self.beat(*names, state=State.RUNNING, run=self.view.run, **says)

    def answer(self, **next_steps):
        """Stop as told, each with its first step that is not done."""
        for name, next_step in next_steps.items():
            self.train(name, stopped=self.stop, next_step=next_step)

    def links(self, name):
        """A client's streams to all others."""
        return {
            other.incarnation: LinkReport({name, other.client} not in self.cuts)
            for other in self.clients.values()
            if other.client != name
        }

    def live(self, seconds, **next_steps):
        """Let time pass. The named stop when told, each at its step, and begin by the next view."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            for name, next_step in next_steps.items():
                self.heed(name, next_step)
            self.tick()

    def heed(self, name, next_step):
        """Do as told, like a member that is at this step, or like one that could join there."""
        client, run = self.clients[name], self.view.run
        says = {"next_step": next_step, "links": self.links(name)}
        if not self.view.has(name, client.incarnation):
            self.beat(name, state=State.READY, run=run, **says)
            return
        before = self.stopped.get(client.incarnation, 0)
        stopped = self.stopped[client.incarnation] = max(before, self.stop)
        self.train(name, stopped=stopped if stopped >= self.view.generation else 0, **says)

    def come_back(self, name, **says):
        """Start another process of a client that has something of the run."""
        self.clients[name] = self.register(
            name, nonce=f"{name} at {self.now}", wants_run=False, address=f"{name}:2"
        )
        self.sessions[name] = self.federation.connected(self.clients[name], self.now)
        self.beat(name, run=self.view.run, **says)

    def restart(self):
        """Kill the coordinator and start another on the same disk; who was connected comes back."""
        stored, run = json.dumps(self.federation.snapshot()), self.federation.run
        self.federation = self._found()
        self.federation.restore(json.loads(stored), run.alignments if run else {}, self.now)
        for name, before in list(self.clients.items()):
            self.clients[name] = after = self.federation.registry.get(name, before)
            if before.in_session and after is not before:
                self.sessions[name] = self.federation.connected(after, self.now)
                self.federation.heartbeat(after, before.report, self.now)

    def disconnect(self, name):
        self.federation.disconnected(self.clients[name], self.sessions[name], self.now)
        self.act()

    def tick(self):
        self.federation.tick(self.now)
        self.act()

    def directive(self, name):
        return self.federation.directive(self.clients[name])

    def call(self, name):
        """The alignment that a client is called to, if any."""
        return getattr(self.directive(name), "call", None)

    @property
    def current(self):
        """The id of the alignment under way, or of the last one while its outcome is kept."""
        return self.federation.alignments.current.id

    def alignment(self, name, id=None):
        """The alignment that a client's message is about."""
        return self.federation.alignments.of(self.clients[name], id or self.current)

    def commit(self, *names, id=None):
        """Commit to the list of points."""
        for name in names:
            self.alignment(name, id).commit(commitment(name, self.listed(name, "serve")))

    def submit(self, *names, id=None):
        """Submit all lists."""
        for name in names:
            alignment = self.alignment(name, id)
            if alignment.scheme == "ecdh":
                places = self.places(name) if alignment.tells_tables else None
                alignment.submit(name, "serve", self.listed(name, "serve"), places)
                continue
            for table in alignment.tables:
                alignment.submit(name, table, self.listed(name, table))

    def listed(self, name, table):
        tables = self.tables.get(self.clients[name].incarnation)
        return tables[table] if tables else digests()

    def places(self, name):
        """Tell of everybody on a client's list which table has the person."""
        everybody = self.listed(name, "serve")
        places = np.full(len(everybody), TABLES.index("serve"), dtype=np.uint8)
        for table in ("train", "test"):
            mine = self.listed(name, table)
            is_in = (everybody[:, None] == mine).all(axis=2).any(axis=1)
            places[is_in] = TABLES.index(table)
        return places

    def group(self):
        """Do what the service does with lists that are complete."""
        taken = self.federation.alignments.take_lists()
        if taken:
            alignment, lists = taken
            results = group_lists(self.federation.roster, lists)
            self.federation.grouped(alignment, results, self.now)
        return taken is not None

    def align(self, *names):
        """Let these do all of their part, and group."""
        if self.federation.alignments.scheme == "ecdh":
            self.commit(*names)
        self.submit(*names)
        return self.group()

    def act(self):
        current = self.federation.alignments.current
        if self.is_obliging and current is not None and not current.is_over:
            self.align(*current.members)

    def outcome(self, name, id="run-1"):
        """What a client is told of its rows."""
        return self.federation.outcome(self.clients[name], id)

    def fetch(self, *names):
        """Take in the outcome of the alignment that is kept."""
        for name in names:
            assert self.outcome(name, self.current) is not None
            self.federation.alignments.fetched(self.clients[name], self.current)

    def refuse(self, name, peer, reason="it does not fit", id=None, **keys):
        client = self.clients[name]
        self.federation.refuse(client, id or self.current, peer, reason, self.now, **keys)

    def dry_run(self, name):
        """Ask for a dry run as the service does."""
        self.federation.dry_run(self.clients[name], self.now)
        self.tick()

    def wait(self, seconds, *names, state=State.RUNNING, run="run-1", **says):
        """Let time pass in the coordinator's own small ticks; the named ones keep beating."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            self.beat(*names, state=state, run=run, **says)
            self.tick()

    def rest(self, seconds, *names):
        """Let time pass while the named ones stay registered."""
        self.wait(seconds, *names, state=State.JOINING, run="")


def commitment(client, rows, num_known=0):
    return Commitment(client, len(rows), hashlib.sha256(rows.tobytes()).digest(), num_known)


def started(*roster, **keys):
    """A federation in a run."""
    play = Play(*roster, **keys)
    for name in roster:
        play.join(name, 1, 2)
    play.ready(*roster)
    assert isinstance(play.directive(roster[0]), Training)
    play.beat(*roster, state=State.RUNNING, run="run-1")
    return play


def finished(*roster, **keys):
    """A federation after a run: all have a model and are idle."""
    play = started(*roster, **keys)
    play.beat(*roster, state=State.FINISHED, run="run-1")
    play.idle(*roster)
    return play


def called(*roster, without=(), **keys):
    """A federation whose alignment for a run has just been called; nobody acts by itself."""
    play = Play(*roster, is_obliging=False, **keys)
    for name in roster:
        if name not in without:
            play.join(name, 1, 2)
    return play


def brought_to(phase, play, *names):
    """Let these go so far; return what the service holds while it groups."""
    if phase != "called":
        play.commit(*names)
    if phase == "submitted":
        play.submit(*names[:-1])
    if phase == TAKEN:
        play.submit(*names)
        return play.federation.alignments.take_lists()
    return None
