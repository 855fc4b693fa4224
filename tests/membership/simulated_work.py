"""What a simulated client does in its steps: compute, send, wait, apply, under the real rules."""

from types import SimpleNamespace

from laser_vfl.client.training.step_queue import StepQueue
from laser_vfl.coordinator.rules.directives import State

CHECKPOINT_EVERY = 4


class Worker:
    """The steps of a client; whom it sends to and what it hears is the client's."""

    def work_on(self):
        """Go on as far as possible."""
        membership = self.membership
        if self.is_over:
            return
        if membership.must_stop and (self.phase is None or self.phase.is_waiting):
            self._drop()
        if membership.is_excluded:
            self.renew()
            return
        if membership.may_begin:
            self._begin()
        if self.phase is not None and self.phase.is_waiting and not membership.must_stop:
            self._go_on()

    def _drop(self):
        """End what is under way; steps that are not applied leave no trace."""
        if self.phase is not None:
            self.world.counts["redone"] += len(self.members_of)
        self._ended()

    def _ended(self):
        self.phase = None
        self.membership.ended(self.next_step)
        self.report()
        self.world.moment("answer", self.name)

    def _begin(self):
        world = self.world
        is_survivor = self.membership.view is not None
        view = self.membership.begin()
        is_other = view.my_next_step != self.next_step
        if is_survivor and is_other and self.is_honest:
            world.fail(
                f"{self.name} answered {self.next_step}, and the view says {view.my_next_step}"
            )
        self.next_step = self.membership.next_step
        self.frame_buffer.begin(view.generation)
        for link in self.links.values():
            link.retained.clear()
        self.state, self.is_ready = State.RUNNING, True
        if view.generation > 1:
            world.moment("begin", self.name)
            if not self.is_alive:
                return
        self.queue = StepQueue(
            range(self.next_step, world.num_steps),
            self._applied_before,
            together=world.pipeline > 0,
        )
        self.outbox = []
        self.members_of = {}
        """Of each step under way that concerns this client, the participants."""
        self._go_on()

    def _applied_before(self, step):
        """As `Timeline` says, without any preparation before training."""
        return max(step - self.world.pipeline, step - step % CHECKPOINT_EVERY)

    def _others(self, step):
        members = self.members_of.get(step, ())
        return [peer for peer in self.membership.view.peers if peer.name in members]

    def _keys(self, step, kind):
        return [(peer.index, kind, step) for peer in self._others(step)]

    def _holds(self, kind):
        return lambda step: self.frame_buffer.holds(self._keys(step, kind))

    def _go_on(self):
        """Do what comes next; a step that is not this client's takes no time."""
        while True:
            if self.membership.must_stop:
                self._drop()
                return
            action = self.queue.next(self._holds("representation"), self._holds("gradient"))
            if action == "apply":
                if self.queue.oldest in self.members_of:
                    self.frame_buffer.take(self._keys(self.queue.oldest, "gradient"))
                    self._compute(self._apply)
                    return
                self.queue.applied()
                self._step_done()
            elif action == "begin":
                if self.name in self.world.observed[self.queue.upcoming]:
                    self._compute(self._represent)
                    return
                self.queue.begun(learns=False)
                self._flush(waits=False)
            elif action == "learn":
                self.frame_buffer.take(self._keys(self.queue.learning, "representation"))
                self._compute(self._learn)
                return
            elif action == "end":
                self._flush(waits=True)
                self.state = State.FINISHED
                self.phase = None
                self.membership.ended(self.next_step)
                self.report()
                return
            else:
                self._wait()
                return

    def _compute(self, then):
        seconds = self.slowness or self.world.random.uniform(0.02, 0.2)
        self.phase = SimpleNamespace(is_waiting=False, since=self.world.now)
        self.act(seconds, self._computed, self.phase, then)

    def _computed(self, phase, then):
        if phase is not self.phase:
            return
        if self.membership.must_stop:
            self._drop()
            self.work_on()
            return
        then()
        self._go_on()

    def _represent(self):
        step, world = self.queue.upcoming, self.world
        mask = self.membership.view.participants(step)
        self.members_of[step] = frozenset(
            name
            for k, name in enumerate(world.names)
            if mask >> k & 1 and name in world.observed[step]
        )
        self.queue.begun(learns=True)
        self._have_sent(step, "representation")

    def _learn(self):
        step = self.queue.learning
        self.queue.learnt()
        self._have_sent(step, "gradient")

    def _have_sent(self, step, kind):
        self.outbox.append((step, kind, self._others(step)))
        self._flush(waits=False)

    def _flush(self, *, waits):
        if self.queue.leaves(waits=waits):
            for step, kind, peers in self.outbox:
                self._send(step, kind, peers)
            self.outbox.clear()
            self.queue.left()

    def _wait(self):
        self._flush(waits=True)
        oldest, learning = self.queue.oldest, self.queue.learning
        sets = [self._keys(oldest, "gradient")] if oldest != learning else []
        sets += [self._keys(learning, "representation")] if learning is not None else []
        with self.frame_buffer._lock:
            self.frame_buffer._is_complete(sets)
        if self.phase is None or not self.phase.is_waiting:
            self.phase = SimpleNamespace(is_waiting=True, since=self.world.now)

    def _apply(self):
        step = self.queue.oldest
        if self.is_honest and self.applied and step <= self.applied[-1]:
            self.world.fail(f"{self.name} applies step {step} after {self.applied[-1]}")
        self.world.note_applied(
            self.name, step, self.membership.view.generation, self.members_of.pop(step)
        )
        self.applied.append(step)
        self.queue.applied()
        self._step_done()

    def _step_done(self):
        self.next_step += 1
        if self.next_step % CHECKPOINT_EVERY == 0:
            self.checkpoints[self.next_step] = list(self.applied)
