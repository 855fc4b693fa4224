"""Clients that come, die and do their part in any order, as chance has it, by hundreds."""

import random
from contextlib import suppress

import pytest

from laser_vfl.coordinator.rules.alignment.alignment import Alignment, group_lists
from laser_vfl.coordinator.rules.directives import Finished, Gathering, State, Stopped, Training
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import LaserError
from tests.support.fakes.simulated_federation import Play, digests

ROSTER = ("a", "b", "c")

NUM_SCHEDULES = 90
"""For each rule. All of them together take less than two seconds."""

NUM_EVENTS = 80

PATIENCE_S = 100.0
"""How long a run may take to start once everybody behaves; silence alone may take ten of them."""


class Watched(Play):
    """A federation of which every event is checked. Nobody acts by itself."""

    def __init__(self, chance, **keys):
        super().__init__(*ROSTER, is_obliging=False, **keys)
        self.chance = chance
        self.trouble = chance.random()
        self.alive = set()
        self.num_processes = 0
        self.under_way = None
        self.listed_by = {}
        """Of each alignment whose lists were taken: the processes that they are of."""
        self.held = []
        """Lists that are being grouped."""

    def note(self, event, subject, reason):
        super().note(event, subject, reason)
        if isinstance(subject, Alignment):
            if event == "aligning":
                assert self.under_way is None
                assert self.federation.run is None
                assert subject.ring
                self.under_way = subject.id
            else:
                assert event in ("aligned", "given up", "refused")
                assert self.under_way == subject.id
                self.under_way = None
        elif event == "started":
            assert self.under_way is None
            assert not subject.alignments, "all have their rows"
            assert self.listed_by[subject.id] == {
                name: self.clients[name].incarnation for name in subject.members
            }
            for name in subject.members:
                assert self.federation.knows(self.clients[name])

    def listed(self, name, table):
        """Everybody keeps to its lists, read or not."""
        num_samples = self.clients[name].incarnation % 4 if table != "test" else 0
        return digests(*range(num_samples))

    def check(self):
        calls = {self.call(name).id for name in self.there() if self.call(name)}
        assert calls <= {self.under_way}
        run = self.federation.run
        assert run is None or self.under_way is None

    def there(self):
        """Who is alive, and known to the coordinator."""
        names = sorted(self.alive)
        return [name for name in names if self.federation.knows(self.clients[name])]

    def arrive(self, name, **keys):
        """A process starts, or renews after a verdict, or when the coordinator forgot it."""
        if name not in self.alive:
            self.num_processes += 1
        nonce = self.clients[name].nonce if name in self.alive else f"process {self.num_processes}"
        with suppress(LaserError):  # The name is taken as long as the old one is not missed.
            self.come(name, nonce=nonce, **keys)
            self.alive.add(name)

    def die(self, name):
        self.alive.discard(name)
        if self.chance.random() < 0.7:  # Otherwise nobody is told.
            self.disconnect(name)

    def take(self):
        taken = self.federation.alignments.take_lists()
        if taken:
            alignment, lists = taken
            assert lists.keys() == set(alignment.members)
            self.listed_by[alignment.id] = {m.client: m.incarnation for m in alignment.ring}
            self.held.append(taken)

    def give(self):
        if self.held:
            alignment, lists = self.held.pop()
            self.federation.grouped(alignment, group_lists(ROSTER, lists), self.now)

    def go_on(self, name):
        """Do what the directive says, if anything."""
        match self.directive(name):
            case Gathering(run="", call=None):
                self.beat(name)
            case Gathering(run=""):
                self.do_part(name)
            case Gathering(run=run):
                assert self.outcome(name, run)["train"].num_rows == len(self.listed(name, "train"))
                self.ready(name, run=run)
            case Training(view=view) if not view.has(name, self.clients[name].incarnation):
                self.arrive(name, wants_run=False)
            case Training(stop=stop):
                report = self.clients[name].report
                done = not (stop or report.stopped or report.state is State.READY)
                state = State.FINISHED if done else State.RUNNING
                self.beat(name, state=state, run=self.view.run, stopped=stop)
            case Stopped() | Finished():
                self.arrive(name, wants_run=False)

    def do_part(self, name):
        """Commit when called, submit when all have committed."""
        if name in self.federation.alignments.waiting_for:
            self.submit(name) if self.call(name).commitments else self.commit(name)
        self.beat(name)

    def take_in(self, name):
        """Fetch the outcome of an alignment that is kept; people are named by it from now on."""
        kept = self.federation.alignments.current
        with suppress(LaserError):
            if kept and kept.is_over and self.outcome(name, kept.id):
                self.fetch(name)
                if kept.purpose is AlignmentPurpose.UNALIGNED_IDS:
                    self.serve(name, naming=kept.id, num_unaligned=0)

    def anything(self):
        """Let chance decide what happens next."""
        chance, name = self.chance, self.chance.choice(ROSTER)
        if name not in self.there():
            self.arrive(name, wants_run=chance.random() < 0.8)
            return
        event = chance.choices(
            ["on", "prepare", "die", "stop", "refuse", "dry run", "retrain", "serve", "wild"],
            [80, 15, 3 * self.trouble, self.trouble, self.trouble, 4, 2, 4, 4],
        )[0]
        if event == "on":
            self.go_on(name)
            self.take_in(name)
        elif event == "prepare":
            self.prepare(name)
        elif event == "die":
            self.die(name)
        elif event == "stop":
            self.alive.discard(name)
            self.federation.gone(self.clients[name], "it was stopped")
        elif event == "refuse" and self.under_way:
            is_gone = chance.random() < 0.5
            self.refuse(name, chance.choice(ROSTER), unreachable=is_gone)
        elif event == "dry run":
            self.dry_run(name)
        elif event == "retrain":
            self.federation.retrain(None)
        elif event == "serve":
            naming = chance.choice(["old", "new"])
            self.serve(name, model_run="old", naming=naming, num_unaligned=chance.randrange(2))
        elif self.federation.alignments.current:
            chance.choice([self.commit, self.submit])(name)

    def happen(self):
        with suppress(LaserError):  # What comes too late or too early is refused.
            self.anything()
        self.check()
        if self.chance.random() < 0.5:
            self.take()
        if self.chance.random() < 0.3:
            self.give()
        if self.chance.random() < 0.3:
            self.now += self.chance.choice([0.25, 0.5, 1.0, 4.0])
            self.tick()
        self.check()

    def behave(self):
        """A run is wanted; everybody is there and does its part at once."""
        self.now += 0.5
        if self.federation.run is None and not self.federation.wanted:
            self.federation.retrain(None)
        for name in ROSTER:
            if name not in self.there() or self.clients[name].verdict:
                self.arrive(name)
            if name in self.there():
                if not self.clients[name].report.prepared:
                    self.prepare(name)
                self.go_on(name)
                self.take_in(name)
        self.take()
        self.give()
        self.tick()
        self.check()


def play_at_random(seed, start):
    play = Watched(random.Random(seed), start=start, members_of={"old": ROSTER[:2]})
    for _ in range(NUM_EVENTS):
        play.happen()
    num_events, until = len(play.events), play.now + PATIENCE_S
    while "started" not in play.event_names[num_events:]:
        assert play.now < until, f"no run has started: {play.events[-3:]}"
        play.behave()
    return set(play.event_names)


@pytest.mark.parametrize("start", [None, StartRule(quorum=2, after_s=3)], ids=["all", "quorum"])
def test_whatever_happens_a_run_starts_when_all_behave(start):
    seen = set()
    for seed in range(NUM_SCHEDULES):
        try:
            seen |= play_at_random(seed, start)
        except Exception as error:
            error.add_note(f"in the schedule of seed {seed}")
            raise
    # Chance has tried everything; that all come back with nothing of a run is rare.
    of_alignments = {"aligning", "aligned", "refused", "given up"}
    assert seen - {"stopped"} == of_alignments | {"started", "changed", "finished"}
