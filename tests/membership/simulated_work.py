"""What a simulated client does in its steps: compute, send, wait, apply, under the real rules."""

from types import SimpleNamespace

from laser_vfl.coordinator.directives import State

CHECKPOINT_EVERY = 4


class Worker:
    """The steps of a client; whom it sends to and what it hears is the client's."""

    def work_on(self):
        """Go on as far as possible."""
        membership = self.membership
        if self.is_over:
            return
        if membership.must_stop and (self.phase is None or self.phase.is_waiting):
            if self.phase is not None:
                self.world.counts["redone"] += 1
            self._ended()
        if membership.is_excluded:
            self.renew()
            return
        if membership.may_begin:
            self._begin()
        if self.phase is not None and self.phase.is_waiting and not membership.must_stop:
            keys = self.phase.keys
            if all(key in self.inbox._frames for key in keys):
                self.inbox.take(keys)
                self._compute(self.phase.then)

    def _ended(self):
        self.phase = None
        self.membership.ended(self.next_step)
        self.report()
        self.world.moment("answer", self.name)

    def _begin(self):
        is_survivor = self.membership.view is not None
        view = self.membership.begin()
        if is_survivor and view.my_next_step != self.next_step:
            self.world.fail(
                f"{self.name} answered {self.next_step}, and the view says {view.my_next_step}"
            )
        self.next_step = self.membership.next_step
        self.inbox.begin(view.generation)
        for link in self.links.values():
            link.retained.clear()
        self.state, self.is_ready = State.RUNNING, True
        if view.generation > 1:
            self.world.moment("begin", self.name)
            if not self.is_alive:
                return
        self._next()

    def _next(self):
        world = self.world
        while self.next_step < world.num_steps and self.name not in world.observed[self.next_step]:
            self._step_done()
        if self.membership.must_stop:
            self._ended()
            return
        if self.next_step == world.num_steps:
            self.state = State.FINISHED
            self.phase = None
            self.membership.ended(self.next_step)
            self.report()
            return
        step, view = self.next_step, self.membership.view
        mask = view.participants(step)
        self.members = frozenset(
            name
            for k, name in enumerate(world.names)
            if mask >> k & 1 and name in world.observed[step]
        )
        self.others = [peer for peer in view.peers if peer.name in self.members]
        self._compute(self._represent)

    def _compute(self, then):
        seconds = self.slowness or self.world.random.uniform(0.02, 0.2)
        self.phase = SimpleNamespace(is_waiting=False, since=self.world.now)
        self.act(seconds, self._computed, self.phase, then)

    def _computed(self, phase, then):
        if phase is not self.phase:
            return
        if self.membership.must_stop:
            self.world.counts["redone"] += 1
            self._ended()
            self.work_on()
            return
        then()

    def _represent(self):
        self._send(self.next_step, "representation", self.others)
        self._wait("representation", self._learn)

    def _learn(self):
        self._send(self.next_step, "gradient", self.others)
        self._wait("gradient", self._apply)

    def _wait(self, kind, then):
        keys = [(peer.index, kind, self.next_step) for peer in self.others]
        with self.inbox._lock:
            self.inbox._missing = {key for key in keys if key not in self.inbox._frames}
        self.phase = SimpleNamespace(is_waiting=True, since=self.world.now, keys=keys, then=then)
        self.work_on()

    def _apply(self):
        step = self.next_step
        if self.applied and step <= self.applied[-1]:
            self.world.fail(f"{self.name} applies step {step} after {self.applied[-1]}")
        self.world.note_applied(self.name, step, self.membership.view.generation, self.members)
        self.applied.append(step)
        self._step_done()
        self._next()

    def _step_done(self):
        self.next_step += 1
        if self.next_step % CHECKPOINT_EVERY == 0:
            self.checkpoints[self.next_step] = list(self.applied)
