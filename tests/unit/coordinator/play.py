"""A federation in a play: real rules, a clock that is told the time, clients that behave."""

import math

import numpy as np

from laser_vfl.coordinator.directives import State, View
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.records import TABLES

SEED = 7

TIMEOUT_S = 10.0


def digests(*samples):
    table = np.zeros((len(samples), 32), dtype=np.uint8)
    table[:, 0] = samples
    return table


class Play:
    """A federation with a clock, and clients that do what real ones do."""

    def __init__(self, *roster, start=None, step_timeout_s=math.inf):
        self.now = 1000.0
        self.events = []
        self.seeds = {}
        self.sessions = {}
        self.clients = {}
        numbers = iter(range(1, 100))
        seeds = iter(range(1001, 1100))
        self.federation = Federation(
            roster,
            start=start,
            heartbeat_timeout_s=TIMEOUT_S,
            step_timeout_s=step_timeout_s,
            seed=SEED,
            new_seed=lambda: next(seeds),
            new_run_id=lambda: f"run-{next(numbers)}",
            on_event=lambda event, run, reason: self.note(event, run, reason),
        )
        self.federation.tick(self.now)

    def note(self, event, run, reason):
        self.events.append((event, run.id, reason))
        self.seeds[run.id] = run.seed

    def register(self, name, *, nonce=None, has_head=True, wants_run=True):
        return self.federation.register(
            name,
            nonce=nonce or f"nonce-{name}",
            address=f"{name}:1",
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

    def submit(self, name, *samples):
        """Submit both tables, all samples for training."""
        for table in TABLES:
            rows = digests(*samples) if table == "train" else digests()
            self.federation.submit(self.clients[name], table, rows, self.now)

    def join(self, name, *samples, **keys):
        """Register, open a session, submit both tables."""
        self.come(name, **keys)
        self.submit(name, *samples)
        return self.clients[name]

    def idle(self, *names):
        """Come, or renew after a verdict, with a model and no wish."""
        for name in names:
            self.come(name, wants_run=False)

    def beat(self, *names, state=State.JOINING, run="", next_step=0, **keys):
        for name in names:
            self.federation.heartbeat(self.clients[name], state, run, next_step, self.now, **keys)

    def ready(self, *names, run="run-1"):
        self.beat(*names, state=State.READY, run=run)

    def disconnect(self, name):
        self.federation.disconnected(self.clients[name], self.sessions[name], self.now)

    def directive(self, name):
        return self.federation.directive(self.clients[name])

    def alignments(self, name):
        return self.federation.alignments(self.clients[name])

    def wait(self, seconds, *names, state=State.RUNNING, run="run-1"):
        """Let time pass in the coordinator's own small ticks; the named ones keep beating."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            self.beat(*names, state=state, run=run)
            self.federation.tick(self.now)


def started(*roster, **keys):
    """A federation in a run."""
    play = Play(*roster, **keys)
    for name in roster:
        play.join(name, 1, 2)
    play.ready(*roster)
    assert isinstance(play.directive(roster[0]), View)
    play.beat(*roster, state=State.RUNNING, run="run-1")
    return play


def finished(*roster, **keys):
    """A federation after a run: all have a model and are idle."""
    play = started(*roster, **keys)
    play.beat(*roster, state=State.FINISHED, run="run-1")
    play.idle(*roster)
    return play
