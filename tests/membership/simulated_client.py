"""A client in simulated time: the real rules of membership and of frames, with made-up work."""

from types import SimpleNamespace

from simulated_work import Worker

from laser_vfl.client.peers.frame_buffer import FrameBuffer
from laser_vfl.client.peers.peer_stream import RETAINED_BEYOND
from laser_vfl.client.run.membership_follower import MembershipFollower
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.coordinator.rules.directives import Finished, LinkReport, Report, State, Training
from laser_vfl.core.errors import LaserError

HEARTBEAT_S = 1.0
RETRY_S = 0.5
DIAL_S = 0.1


class SimulatedClient(Worker):
    """Lives may follow each other; what is on disk outlives them."""

    is_honest = True

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.index = world.names.index(name)
        self.is_alive = False
        self.is_hung = False
        self.life = 0
        self.slowness = 0.0
        self.has_failed = False
        self.is_over = False
        self.is_gone = False
        """Whether it never comes back."""
        self.checkpoints = {}
        """step → the steps that were applied before it."""
        self.applied = []
        self.may_start = True

    # --- life and death

    def start(self):
        if self.is_alive or self.is_gone:
            return
        self.life += 1
        self.is_alive, self.is_hung, self.is_over = True, False, False
        self.slept = []
        self.applied = []
        self.next_step = 0
        self.is_ready = False
        self.is_first = self.life == 1
        self.state = State.JOINING
        self.leaving = False
        self.membership = MembershipFollower()
        self.registration = None
        self.nonce = f"{self.name}-{self.life}-0"
        self.num_renewals = 0
        self.peers = {}
        self.links = {}
        self.phase = None
        self.session = 0
        self.heard_at = 0.0
        self.told = None
        self.frame_buffer = FrameBuffer(self.world.pipeline)
        if not self.is_first:
            self.world.say(f"{self.name} starts again")
        self.act(0.0, self.register)

    def die(self):
        self.world.say(f"{self.name} dies")
        self.has_failed = True
        self.is_alive = False
        self._hang_up()
        self.world.look()

    def leave(self):
        self.world.say(f"{self.name} wants to leave")
        self.has_failed = True
        if self.membership.view is None:
            self.die()
            return
        self.leaving = True
        self.membership.leave()
        self.work_on()
        self.act(8.0, self.die)

    def hang(self):
        self.is_hung = True
        self.has_failed = True

    def wake(self, life):
        if life != self.life or not self.is_hung:
            return
        self.is_hung = False
        slept, self.slept = self.slept, []
        for action, arguments in slept:
            action(*arguments)

    def act(self, seconds, action, *arguments):
        """Do something later, unless this life is over by then; who hangs does it on waking."""
        self.world.later(seconds, self._act, self.life, action, arguments)

    def _act(self, life, action, arguments):
        if life != self.life or not self.is_alive:
            return
        if self.is_hung:
            self.slept.append((action, arguments))
        else:
            action(*arguments)

    # --- the coordinator

    @property
    def reaches_coordinator(self):
        world = self.world
        is_up = world.federation is not None and not world.is_paused
        return is_up and world.reaches(self.name, "coordinator")

    def register(self):
        if self.registration is not None:
            return
        if not self.reaches_coordinator:
            self.act(RETRY_S, self.register)
            return
        try:
            registration = self.world.federation.register(
                self.name,
                nonce=self.nonce,
                address="somewhere:1",
                has_head=True,
                wants_run=True,
                now=self.world.now,
            )
        except LaserError:
            self.act(RETRY_S, self.register)
            return
        self.incarnation = registration.incarnation
        self.registration = registration
        self.world.decided()
        self.act(self.world.delay(), self.connect)

    def connect(self):
        if self.session or self.registration is None:
            return
        federation = self.world.federation
        if not self.reaches_coordinator:
            self.act(RETRY_S, self.connect)
            return
        try:
            self.registration = federation.find(self.name, self.incarnation)
        except LaserError:
            self.renew()
            return
        self.session = federation.connected(self.registration, self.world.now)
        self.told = None
        self.beat(self.session)

    def hung_up(self):
        """The coordinator has died."""
        if self.session:
            self.session = 0
            self.act(RETRY_S, self.connect)

    def _hang_up(self):
        if self.session and self.world.federation is not None:
            self.world.federation.disconnected(self.registration, self.session, self.world.now)
            self.session = 0
            self.world.decided()
        self.session = 0

    def look_at_session(self):
        if self.session and not self.world.reaches(self.name, "coordinator"):
            self._hang_up()
            self.act(RETRY_S, self.connect)

    def beat(self, session):
        if session != self.session or self.is_over:
            return
        self.report()
        self.act(HEARTBEAT_S, self.beat, session)

    def report(self):
        """Send a heartbeat; it is heard if the session is still there when it comes."""
        if not self.session:
            return
        report = self.what_is_said()
        self.world.later(self.world.delay(), self._arrive, self.session, report)

    def what_is_said(self):
        """All that the next heartbeat says."""
        missing = self.frame_buffer.waiting_for if self.phase and self.phase.is_waiting else ()
        return Report(
            state=self.state,
            run="run" if self.is_ready or not self.is_first else "",
            stopped=self.membership.stopped,
            next_step=self.next_step,
            waiting_for=tuple(self.world.names[k] for k in missing),
            phase_s=self.world.now - self.phase.since if self.phase else 0.0,
            links={
                incarnation: LinkReport(link.up, self.world.now - link.since)
                for incarnation, link in self.links.items()
            },
            checkpoints=tuple(sorted(self.checkpoints)),
            leaving=self.leaving,
            prepared=True,
            num_steps=self.world.num_steps,
        )

    def _arrive(self, session, report):
        federation = self.world.federation
        if self.world.is_paused:
            self.world.later(0.1, self._arrive, session, report)
            return
        if federation is None or session != self.session or not federation.knows(self.registration):
            return
        federation.heartbeat(self.registration, report, self.world.now)
        self.world.decided()

    def push(self):
        """The coordinator tells what has changed."""
        if not self.session or not self.world.federation.knows(self.registration):
            if self.session and self.is_alive:
                self.session = 0
                self.act(self.world.delay(), self.connect)
            return
        directive = self.world.directive(self.registration)
        if directive != self.told:
            self.told = directive
            at = self.heard_at = max(self.heard_at, self.world.now + self.world.delay())
            for _ in range(2 if self.world.random.random() < 0.05 else 1):
                self.act(at - self.world.now, self.hear, self.session, directive)

    # --- what the coordinator says

    def hear(self, session, directive):
        if session != self.session or self.is_over:
            return
        if isinstance(directive, Finished):
            self.is_over = True
            self.world.say(f"{self.name} is done")
            return
        if not isinstance(directive, Training):
            if getattr(directive, "run", "") and not self.is_ready:  # aligned
                self.is_ready = True
                self.state = State.READY
                self.report()
            return
        self._meet(directive)
        view = self._view(directive.view)
        left_out = bool(directive.left_out)
        self.membership.hear(directive.view.generation, directive.stop, view, left_out=left_out)
        for step in [s for s in self.checkpoints if s < directive.complete]:
            if any(step < other <= directive.complete for other in self.checkpoints):
                del self.checkpoints[step]
        is_fresh = self.membership.view is None and view is None
        if is_fresh and directive.resume is not None:
            self._be_ready(directive.resume)
        if self._has_left(directive):
            self.die()
            return
        self.work_on()

    def _has_left(self, directive):
        return self.leaving and not directive.view.has(self.name, self.incarnation)

    def _be_ready(self, resume):
        if not self.is_ready or self.next_step > resume:
            best = max((s for s in self.checkpoints if s <= resume), default=0)
            for step in [s for s in self.checkpoints if s > best]:
                del self.checkpoints[step]
            self.applied = list(self.checkpoints.get(best, ()))
            self.next_step = best
            self.membership.load(best)
            self.is_ready = True
            self.world.say(f"{self.name} is ready at step {best}")
        if self.state is not State.READY:
            self.state = State.READY
            self.report()

    def renew(self):
        """Register as another process, with all that was learnt."""
        self.has_failed = True
        self._hang_up()
        self.registration = None
        self.num_renewals += 1
        self.nonce = f"{self.name}-{self.life}-{self.num_renewals}"
        self.membership.renew()
        self.is_ready = self.is_ready or self.next_step > 0
        self.is_first = False
        self.state = State.READY if self.is_ready else State.JOINING
        self.peers, self.links = {}, {}
        self.frame_buffer = FrameBuffer(self.world.pipeline)
        self.phase = None
        self.world.say(f"{self.name} has to register anew")
        self.act(self.world.delay(), self.register)

    def _view(self, view):
        if not view.has(self.name, self.incarnation):
            return None
        peers = [
            Peer(self.world.names.index(m.client), m.client, m.incarnation, "")
            for m in view.members
        ]
        return MemberView(
            "run",
            view.generation,
            next(p for p in peers if p.name == self.name),
            tuple(p for p in peers if p.name != self.name),
            view.heads,
            tuple((self.world.names.index(m.client), m.next_step) for m in view.members),
            0,
        )

    # --- streams

    def _meet(self, directive):
        wanted = {
            m.incarnation: m.client
            for m in (*directive.view.members, *directive.joiners)
            if m.client != self.name
        }
        for incarnation in self.links.keys() - wanted.keys():
            del self.links[incarnation]
        for incarnation, name in wanted.items():
            if incarnation not in self.links:
                self.links[incarnation] = SimpleNamespace(
                    name=name, up=False, since=self.world.now, retained=[], epoch=0
                )
                self.world.clients[name].look_at_link(self)

    def link_to(self, other):
        if (
            not self.is_alive
            or not other.is_alive
            or not self.registration
            or not other.registration
        ):
            return None
        return self.links.get(other.incarnation)

    def look_at_link(self, other):
        """Open or close the stream of a pair, as far as both want it and can."""
        mine, theirs = self.link_to(other), other.link_to(self)
        may_be = mine and theirs and self.world.reaches(self.name, other.name)
        for link, one, two in ((mine, self, other), (theirs, other, self)):
            if link is None and one.is_alive and two.registration:
                link = one.links.get(getattr(two, "incarnation", None))
            if link is not None and link.up and not may_be:
                link.up, link.since = False, self.world.now
                link.epoch += 1
                one.act(0.0, one.report)
        if may_be and not (mine.up and theirs.up):
            self.world.later(DIAL_S, self._open, self.life, other, other.life)

    def _open(self, life, other, other_life):
        if (life, other_life) != (self.life, other.life):
            return
        if self.is_hung or other.is_hung:
            self.world.later(RETRY_S, self._open, life, other, other_life)
            return
        mine, theirs = self.link_to(other), other.link_to(self)
        if not mine or not theirs or not self.world.reaches(self.name, other.name):
            return
        for link, one, two in ((mine, self, other), (theirs, other, self)):
            if not link.up:
                link.up, link.since = True, self.world.now
                link.epoch += 1
                one.act(0.0, one.report)
            for message in link.retained:
                one._transmit(two, link, message)

    def _send(self, step, kind, peers):
        for peer in peers:
            link = self.links[peer.incarnation]
            message = SimpleNamespace(
                generation=self.membership.view.generation, step=step, kind=kind
            )
            same = [m for m in link.retained if m.kind == kind]
            if len(same) >= self.world.pipeline + RETAINED_BEYOND:
                link.retained.remove(same[0])
            link.retained.append(message)
            if link.up:
                self._transmit(self.world.clients[peer.name], link, message)

    def _transmit(self, other, link, message):
        self.world.later(
            self.world.delay(),
            self._delivered,
            other,
            other.life,
            self.incarnation,
            link,
            link.epoch,
            message,
        )

    def _delivered(self, other, life, incarnation, link, epoch, message):
        if other.life == life and link.epoch == epoch and other.is_alive:
            other._act(life, other._receive, (self.index, incarnation, message))

    def _receive(self, index, incarnation, message):
        if incarnation in self.links:
            self.frame_buffer.put(index, message)
            self.work_on()
