"""Clients in simulated time that do not keep to the rules, each in a way of its own."""

import random
from dataclasses import replace

from simulated_client import SimulatedClient

from laser_vfl.coordinator.rules.directives import Gathering, LinkReport, State

LONG_S = 1e9


class RestlessClient(SimulatedClient):
    """Leaves as soon as it has joined, and is back at once."""

    is_honest = False

    def _begin(self):
        super()._begin()
        self.act(0.0, self.leave)

    def leave(self):
        if not self.leaving and not self.is_over:
            super().leave()

    def die(self):
        super().die()
        self.world.later(0.0, self.start)


class LyingClient(SimulatedClient):
    """From some step on it sends no frames, to anybody or to some, and tells stories instead.

    It answers a stop, and comes back whenever it is left out. Which stories it tells is drawn for
    each client, and whether it keeps to one of them or has another in each heartbeat.
    """

    is_honest = False
    stories = ()
    """Those that it tells; all if there are none."""
    answers_too = ("deaf", "deaf_and_leaving", "leaves_late", "stays_after_all", "counts_on")
    """Those that it tells also when it has to answer a stop."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.random = random.Random(f"liar {world.seed} {name}")
        self.told = None
        self.first_lie = self.random.randint(0, world.num_steps)
        everything = [method[5:] for method in dir(self) if method.startswith("_say_")]
        stories = list(self.stories) or everything
        is_steady = self.random.random() < 0.7
        self.stories = [self.random.choice(stories)] if is_steady else stories
        others = [other for other in world.names if other != name]
        self.target = self.random.choice(others)
        self.starved = set(self.random.choice([others, others, others[:1], [self.target]]))
        self.lag = 0
        self.told_at = {}
        """When it was told to stop each generation."""

    @property
    def is_lying(self):
        return self.membership.view is not None and self.next_step >= self.first_lie

    def _send(self, step, kind, peers):
        if self.is_lying:
            peers = [peer for peer in peers if peer.name not in self.starved]
        super()._send(step, kind, peers)

    def what_is_said(self):
        report = super().what_is_said()
        has_to_answer = report.stopped and report.stopped == self.membership.view.generation
        if not self.is_lying or report.state is State.READY or self.leaving:
            return report
        story = self.random.choice(self.stories)
        if has_to_answer and story not in self.answers_too:
            return report
        return getattr(self, f"_say_{story}")(report)

    def _say_truth(self, report):
        """It only sends nothing."""
        return report

    def _say_computes(self, report):
        return replace(report, waiting_for=(), phase_s=0.1)

    def _say_slow(self, report):
        return replace(report, waiting_for=(), phase_s=LONG_S)

    def _say_waits(self, report):
        return replace(report, waiting_for=(self.target,), phase_s=0.0)

    def _say_waits_long(self, report):
        return replace(report, waiting_for=(self.target,), phase_s=LONG_S)

    def _say_waits_for_all(self, report):
        others = tuple(other for other in self.world.names if other != self.name)
        return replace(report, waiting_for=others, phase_s=LONG_S)

    def _say_waits_for_itself(self, report):
        return replace(report, waiting_for=(self.name,), phase_s=5.0)

    def _say_waits_in_turn(self, report):
        return replace(report, waiting_for=(self.random.choice(self.world.names),))

    def _say_ahead(self, report):
        self.lag += 1
        next_step = report.next_step + self.lag
        return replace(report, next_step=next_step, waiting_for=(), phase_s=0.1)

    def _say_counts_on(self, report):
        return replace(self._say_ahead(report), state=State.RUNNING)

    def _say_ahead_and_waits(self, report):
        return replace(self._say_waits_long(report), next_step=report.next_step + 1)

    def _say_back_and_forth(self, report):
        next_step = report.next_step + self.random.randint(0, 2)
        return replace(self._say_waits(report), next_step=next_step)

    def _say_behind(self, report):
        return replace(self._say_waits(report), next_step=0)

    def _say_finished(self, report):
        return replace(report, state=State.FINISHED, waiting_for=(), phase_s=0.0)

    def _say_finished_nowhere(self, report):
        next_step = self.random.choice([0, 2**62])
        return replace(self._say_finished(report), next_step=next_step)

    def _say_joining(self, report):
        return replace(report, state=State.JOINING, waiting_for=())

    def _say_ready(self, report):
        return replace(report, state=State.READY, waiting_for=(), phase_s=0.1)

    def _say_stopped_before(self, report):
        return replace(report, stopped=max(self.membership.view.generation - 1, 0), waiting_for=())

    def _say_deaf(self, report):
        return replace(report, stopped=0, waiting_for=(self.target,))

    def _say_deaf_and_leaving(self, report):
        return replace(report, stopped=0, leaving=True, waiting_for=())

    def _say_leaves_late(self, report):
        now, limit_s = self.world.now, self.world.policy.step_timeout_s
        if report.stopped and now - self.told_at.setdefault(report.stopped, now) > 0.9 * limit_s:
            return replace(report, leaving=True)
        return self._say_deaf_and_leaving(report)

    def _say_stays_after_all(self, report):
        return replace(report, leaving=not report.stopped)

    def _say_stopped(self, report):
        return replace(report, stopped=self.membership.view.generation, waiting_for=())

    def _say_unreachable(self, report):
        links = {
            incarnation: LinkReport(self.links[incarnation].name != self.target, LONG_S)
            for incarnation in report.links
        }
        return replace(report, links=links)

    def _say_checkpoints(self, report):
        return replace(self._say_waits(report), checkpoints=tuple(range(64)))


class LingeringClient(LyingClient):
    """Is aligned for a run and does not get ready for it; perhaps it does later, and then lies."""

    manners = ("joining", "elsewhere", "flaps")

    def __init__(self, world, name):
        super().__init__(world, name)
        self.lingers_s = self.random.choice([10.0, 60.0, LONG_S])
        self.manner = self.random.choice(self.manners)

    def what_is_said(self):
        report = super().what_is_said()
        if self.membership.view is not None or self.world.now > 100.0 + self.lingers_s:
            return report
        if self.manner == "elsewhere":
            return replace(report, state=State.READY, run="another")
        if self.manner == "flaps" and self.random.random() < 0.9:
            return replace(report, state=State.FINISHED, next_step=self.world.num_steps)
        return replace(report, state=State.JOINING, run="")


class RunawayClient(SimulatedClient):
    """Dies whenever it is aligned for a run, and is back at once."""

    is_honest = False

    def hear(self, session, directive):
        if session == self.session and isinstance(directive, Gathering) and directive.run:
            self.die()
            self.world.later(0.1, self.start)


class SlowingClient(SimulatedClient):
    """Does all that it should, and from some step on takes almost as long as it may."""

    is_honest = False
    from_step = 200
    takes_s = 2.5

    def _compute(self, then):
        self.slowness = self.takes_s if self.next_step >= self.from_step else 0.0
        super()._compute(then)


class SlowClient(SlowingClient):
    """Has been slow from the beginning, which is no offence."""

    is_honest = True
    from_step = 0
