"""A federation in simulated time: the real rules of both sides, and everything else made up.

Messages take time and are lost when a connection breaks; processes die, hang, leave and come back.
"""

import heapq
import itertools
import json
import random
from dataclasses import replace

from simulated_client import SimulatedClient

from laser_vfl.coordinator.rules.alignment.alignment_queue import Alignments
from laser_vfl.coordinator.rules.federation import Federation
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.policies import AlignmentPolicy, MembershipPolicy
from laser_vfl.coordinator.rules.registry import Registry
from laser_vfl.coordinator.rules.run_start import RunStart
from laser_vfl.core.alignment import ClientAlignment, Group

TICK_S = 0.25
RETRY_S = 0.5
CALM_S = 240.0
"""How long a federation may take to finish once faults have ended."""


class Stuck(AssertionError):
    """A schedule that broke a rule; the message is its story."""


class World:
    """One schedule, from one seed."""

    def __init__(
        self, seed, *, num_clients=None, num_steps=12, liars=None, policy=None, start=None
    ):
        """`liars` has, by name, the class of each client that does not keep to the rules.

        `start` says when the run starts without some clients; without it, it waits for all.
        """
        self.random = random.Random(seed)
        self.seed = seed
        self.now = 100.0
        self.story = []
        self.names = [f"c{k}" for k in range(num_clients or self.random.randint(2, 5))]
        self.num_steps = num_steps
        self.pipeline = random.Random(f"pipeline {seed}").choice([0, 0, 1, 3])
        """How many steps may begin before the oldest one is applied."""
        self.observed = [self._draw_observed() for _ in range(num_steps)]
        self.applied = {}
        """(step, generation) → participants, as whoever applied it saw them."""
        self.cut = set()
        """Pairs that cannot reach each other; the coordinator is a party too."""
        self.counts = dict.fromkeys(("changes", "redone", "deaths"), 0)
        self.departures = []
        """Whoever was left out, but for those who left by themselves."""
        self.ambushes = []
        """(trigger, what, seconds): faults that wait for their moment."""
        self._paused = []
        self._was_changing = False
        self._events = []
        self._number = itertools.count()
        self._epoch = 0
        quorum = self.random.choice([1, 1, 2])
        on_lost = self.random.choice(["continue", "continue", "continue", "wait"])
        policy = policy or MembershipPolicy(quorum, on_lost, 10.0, 3.0, restart_grace_s=20.0)
        self.policy = replace(policy, pipeline=self.pipeline)
        self.start = start
        self.disk = None
        self.federation = None
        classes = dict.fromkeys(self.names, SimulatedClient) | (liars or {})
        self.clients = {name: classes[name](self, name) for name in self.names}
        self.honest = {n: c for n, c in self.clients.items() if c.is_honest}
        self.start_coordinator()
        for client in self.clients.values():
            client.start()
        rule = f"quorum {self.policy.quorum}, on_lost {self.policy.on_lost}"
        self.say(f"{len(self.names)} clients, {rule}")

    def _draw_observed(self):
        clients = list(self.names)
        if self.random.random() < 0.5:
            clients = self.random.sample(clients, self.random.randint(1, len(clients)))
        return frozenset(clients)

    def say(self, text):
        self.story.append(f"{self.now - 100:8.3f} {text}")

    def fail(self, text):
        story = "\n".join(self.story[-400:])
        raise Stuck(f"seed {self.seed}: {text}\n{story}\n--- seed {self.seed}: {text}")

    def later(self, seconds, action, *arguments):
        heapq.heappush(self._events, (self.now + seconds, next(self._number), action, arguments))

    def run(self, faults, within_s=CALM_S):
        """Let the faults happen, then let everybody honest finish within some time."""
        for at, what, *arguments in faults:
            self.later(at, self._hit, what, arguments)
        calm_at = self.now + max((at for at, *_ in faults), default=0.0) + 10.0
        self.later(calm_at - self.now, self._calm)
        while not self._is_finished():
            if not self._events or self.now > calm_at + within_s:
                self.fail("it does not finish")
            self.now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
        self._check_end()

    def _is_finished(self):
        return all(client.is_over or client.is_gone for client in self.honest.values())

    def _check_end(self):
        is_undisturbed = not any("fault:" in line for line in self.story)
        if is_undisturbed and len(self.honest) == len(self.names) and self.counts["changes"]:
            self.fail("the members changed without a fault")
        left_out = {gone.client for gone in self.departures}
        for name, client in self.honest.items():
            mine = [t for t, observed in enumerate(self.observed) if name in observed]
            has_failed = client.has_failed or name in left_out
            if not has_failed and client.applied != mine:
                self.fail(f"{name} never failed, and did {client.applied} of {mine}")

    # --- faults

    def _hit(self, what, arguments):
        self.say(f"fault: {what} {' '.join(map(str, arguments))}")
        getattr(self, f"_fault_{what}")(*arguments)

    def _fault_crash(self, name, seconds):
        client = self.clients[name]
        if client.is_alive:
            client.die()
            self.later(seconds, client.start)

    def _fault_death(self, name):
        """Somebody never comes back, once all have begun, if that is allowed for."""
        run = self.federation.run if self.federation is not None else None
        others = [c for c in self.clients.values() if c.name != name and not c.is_gone]
        is_allowed = self.policy.on_lost == "continue" and len(others) >= self.policy.quorum
        if run is not None and run.membership is not None and is_allowed:
            client = self.clients[name]
            client.is_gone = client.has_failed = True
            if client.is_alive:
                client.die()
            self.counts["deaths"] += 1

    def _fault_leave(self, name, seconds):
        client = self.clients[name]
        if client.is_alive and not client.is_hung:
            client.leave()
            self.later(seconds, client.start)

    def _fault_hang(self, name, seconds):
        client = self.clients[name]
        if client.is_alive:
            client.hang()
            self.later(seconds, client.wake, client.life)

    def _fault_slow(self, name, seconds):
        client = self.clients[name]
        client.slowness, client.has_failed = 5.0, True
        self.later(seconds, setattr, client, "slowness", 0.0)

    def _fault_cut(self, a, b, seconds):
        self.cut.add(frozenset((a, b)))
        self.look()
        self.later(seconds, self._mend, frozenset((a, b)))

    def _fault_island(self, name, seconds):
        """Somebody can reach nobody for a while."""
        for other in [*self.names, "coordinator"]:
            if other != name:
                self._fault_cut(name, other, seconds)

    def _mend(self, pair):
        self.cut.discard(pair)
        self.say(f"{' and '.join(sorted(pair))} can reach each other again")
        self.look()

    def _fault_ambush(self, trigger, what, name, seconds):
        self.ambushes.append((trigger, what, name, seconds))

    def moment(self, trigger, name=""):
        """Something happens that an ambush may wait for; it may hit after all were told, or not."""
        for ambush in self.ambushes:
            if ambush[0] == trigger:
                self.ambushes.remove(ambush)
                _, what, victim, seconds = ambush
                self.say(f"ambush at {trigger}: {what} {victim or name}")
                arguments = (
                    (seconds,)
                    if what in ("coordinator", "pause")
                    else (
                        victim or name,
                        seconds,
                    )
                )
                if self.random.random() < 0.5:
                    getattr(self, f"_fault_{what}")(*arguments)
                else:
                    self.later(self.delay(), getattr(self, f"_fault_{what}"), *arguments)
                return

    def _fault_pause(self, seconds):
        """The coordinator does nothing for a while; what comes meanwhile it hears then."""
        if self.federation is not None and not self._paused:
            self._paused = [self.federation]
            self.later(seconds, self._unpause, self._epoch)

    def _unpause(self, epoch):
        self._paused = []
        if epoch == self._epoch:
            self._tick(epoch, is_extra=True)

    @property
    def is_paused(self):
        return bool(self._paused)

    def _fault_coordinator(self, seconds):
        if self.federation is not None:
            self._paused = []
            self.federation = None
            self._epoch += 1
            for client in self.clients.values():
                client.hung_up()
            self.later(seconds, self.start_coordinator)

    def _calm(self):
        self.say("faults have ended")
        self.cut.clear()
        for client in self.clients.values():
            client.slowness = 0.0
            client.wake(client.life)
            self.later(10.0, client.start)  # whoever is not up by then
        self.later(0.0, self.start_coordinator)
        self.look()

    # --- the coordinator

    def start_coordinator(self):
        if self.federation is not None:
            return
        self._epoch += 1
        aligning, observer = AlignmentPolicy(), FederationObserver()
        self.federation = Federation(
            Registry(self.names, self.policy),
            RunStart(self.names, self.start, aligning, 0, lambda: 0),
            Alignments(self.names, "ecdh", aligning, lambda: "run", observer),
            self.policy,
            observer,
        )
        if self.disk is not None:
            self.federation.restore(json.loads(self.disk), {}, self.now)
            self.say("coordinator starts again")
        self._tick(self._epoch)

    def _tick(self, epoch, is_extra=False):
        if epoch != self._epoch or self.federation is None:
            return
        if not self._paused:
            self.federation.tick(self.now)
            self.decided()
        if not is_extra:
            self.later(TICK_S, self._tick, epoch)

    def decided(self):
        """Write what the rules decided to disk, then tell everybody whom it concerns."""
        federation = self.federation
        current = federation.alignments.current
        if current is not None and not current.is_over:
            groups = ClientAlignment((Group(1, 1),), {})
            results = {name: {"train": groups} for name in current.members}
            federation.grouped(current, results, self.now)
        # A change may leave nobody with anything to do, and the run ends with it.
        membership = federation.run.membership if federation.run else federation._last_membership
        is_changing = membership is not None and membership._change is not None
        if is_changing and not self._was_changing:
            self._was_changing = True
            self.moment("stop")
            if self.federation is not federation:
                return
        self._was_changing = is_changing
        text = json.dumps(federation.snapshot())
        if text != self.disk:
            self.disk = text
            if membership is not None and membership.num_changes != self.counts["changes"]:
                self.counts["changes"] = membership.num_changes
                for name in set(self.names) - set(membership.view.clients):
                    self.clients[name].has_failed = True
                self.departures += membership.excluded
                members = ", ".join(
                    f"{m.client}#{m.incarnation} from {m.next_step}"
                    for m in membership.view.members
                )
                self.say(f"coordinator: view {membership.view.generation}: {members}")
                self.moment("view")
                if self.federation is not federation:
                    return
        for client in self.clients.values():
            if client.is_alive:
                client.push()

    def directive(self, registration):
        return self.federation.directive(registration)

    def reaches(self, a, b):
        return frozenset((a, b)) not in self.cut

    def look(self):
        """A way was opened or closed: all streams have to be looked at."""
        for client in self.clients.values():
            client.look_at_session()
        for a, b in itertools.combinations(self.clients.values(), 2):
            a.look_at_link(b)

    def delay(self):
        return self.random.uniform(0.001, 0.05 if self.random.random() < 0.95 else 1.0)

    # --- what clients report of their steps

    def note_applied(self, client, step, generation, participants):
        before = self.applied.setdefault((step, generation), participants)
        if before != participants:
            self.fail(
                f"{client} applied step {step} of generation {generation} with "
                f"{sorted(participants)}, another with {sorted(before)}"
            )
