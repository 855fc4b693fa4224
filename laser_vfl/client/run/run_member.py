"""This client in one run, from its first view to the coordinator's last word on it.

Members come and go meanwhile, the coordinator too; this client may be left out and come back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from laser_vfl.client.peers.frame_buffer import Interrupted
from laser_vfl.client.peers.peer_mesh import PeerMesh
from laser_vfl.client.peers.peer_network import PeerNetwork
from laser_vfl.client.run.membership_follower import MembershipFollower
from laser_vfl.client.session.coordinator_session import Session, stopped_by
from laser_vfl.client.session.member_view import member_view, read_peers
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.training.trainer import Trainer
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.errors import (
    AddressError,
    LaserError,
    LimitExceeded,
    NameTaken,
    TrainingStopped,
    printable,
)
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

POLL_S = 1.0
"""How often this client looks at its state when nothing has happened."""


class RunLost(TrainingStopped):
    """The coordinator does not know of the run any more, or has another one."""


class RunMember:
    """Follows what the coordinator says; the work is done in a thread of its own."""

    def __init__(
        self,
        name: str,
        trainer: Trainer,
        session: Session,
        progress: Progress,
        network: PeerNetwork,
        when_done: Callable[[], Awaitable[None]],
        coordinator_timeout_s: float,
        times: WaitingTimes = DEFAULT_TIMES,
    ) -> None:
        self._name = name
        self._trainer = trainer
        self._session = session
        self._progress = progress
        self._network = network
        self._when_done = when_done
        self._coordinator_timeout_s = coordinator_timeout_s
        self._times = times
        self._record = trainer.record
        self._roster = trainer.record.roster
        self._membership = MembershipFollower()
        self._mesh = self._new_mesh()
        self._task: asyncio.Task[None] | None = None
        self._is_unknown = False
        """Whether the coordinator does not know this process any more."""
        self._is_prepared = False
        """Whether the model is ready to be served."""
        self._is_over = False
        self._has_complained = False

    async def run(self) -> None:
        """Take part until all have finished; when cancelled, take leave first."""
        try:
            while not self._is_over:
                num_heard = self._session.num_heard
                await self._follow(self._session.latest)
                await self._act()
                if not self._is_over:
                    await self._news(num_heard)
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            await asyncio.shield(self._end())

    async def _follow(self, directive: pb.Directive | None) -> None:
        """Take in what the coordinator said last."""
        if directive is None or self._is_unknown:
            return
        run = self._record.run
        if directive.HasField("stopped"):
            raise stopped_by(directive)
        if directive.HasField("finished") and directive.finished.run == run:
            await self._finish()
            return
        if not directive.HasField("training") or directive.training.view.run != run:
            raise RunLost("the coordinator does not know this run any more")
        training = directive.training
        view = member_view(training.view, self._roster, self._name, self._session.incarnation)
        self._membership.hear(
            training.view.generation, training.stop, view, left_out=bool(training.left_out)
        )
        self._mesh.connect_to(read_peers(training, self._roster, self._name))
        await asyncio.to_thread(self._trainer.prune, training.complete)
        if view is None and training.HasField("resume") and not self._membership.running:
            await self._be_ready(training.resume)

    async def _be_ready(self, resume: int) -> None:
        """Have the state to join with: what is in memory, or a checkpoint up to a step."""
        trainer = self._trainer
        if not trainer.is_loaded or trainer.next_step > resume:
            await asyncio.to_thread(trainer.load, resume)
            self._membership.load(trainer.next_step)
        if self._membership.view is None:
            self._progress.rests()
            self._report(pb.CLIENT_STATE_READY)

    async def _act(self) -> None:
        """Do what has become possible or necessary."""
        membership, task = self._membership, self._task
        if task is not None and (membership.must_stop or self._is_unknown):
            self._mesh.interrupt()
        if task is not None and task.done():
            self._task = None
            await self._training_ended(task)
        if self._task is not None:
            return
        if self._is_unknown or membership.is_excluded:
            await self._register_anew()
        elif membership.may_begin and not self._trainer.is_loaded:
            # The view counts on a state that this process does not have.
            await self._register_anew()
        elif membership.may_begin:
            await self._begin()
        if self._progress.has_stopped(membership.stopped):
            self._report()

    async def _training_ended(self, task: asyncio.Task[None]) -> None:
        self._membership.ended(self._trainer.next_step)
        try:
            task.result()
        except Interrupted:
            log.info("stopped before step %d", self._trainer.next_step)
            generation = self._progress.generation
            await asyncio.to_thread(
                self._trainer.note,
                "stopped",
                generation=generation,
                next_step=self._trainer.next_step,
            )
            return
        await self._be_done()
        self._report(pb.CLIENT_STATE_FINISHED)

    async def _interrupt(self, task: asyncio.Task[None]) -> None:
        """End what is under way, however far it is."""
        self._mesh.interrupt()
        await asyncio.gather(task, return_exceptions=True)
        self._task = None

    async def _be_done(self) -> None:
        if not self._is_prepared:
            await self._when_done()
        self._is_prepared = True

    async def _begin(self) -> None:
        """Train by the view that has come."""
        progress, trainer = self._progress, self._trainer
        view = self._membership.begin()
        self._mesh.begin(view)
        members = tuple(sorted(view.addresses, key=self._roster.index))
        progress.begin_view(view.generation, members)
        log.info(
            "generation %d: %s, from step %d on",
            view.generation,
            ", ".join(members),
            self._membership.next_step,
        )
        await asyncio.to_thread(
            trainer.note,
            "view",
            generation=view.generation,
            members=members,
            next_step=self._membership.next_step,
        )
        if trainer.is_done:
            self._membership.ended(trainer.next_step)
            self._report(pb.CLIENT_STATE_FINISHED)
            return
        progress.starts_phase()
        self._task = asyncio.create_task(asyncio.to_thread(trainer.run, view, self._mesh))
        self._report(pb.CLIENT_STATE_RUNNING)

    async def _finish(self) -> None:
        """All members have finished; perhaps without us."""
        if self._task is not None:
            await self._interrupt(self._task)
        if not self._trainer.is_done:
            log.warning("the others have finished without this client; its model is what it has")
            if not self._trainer.is_loaded:
                await asyncio.to_thread(self._trainer.load)
            await asyncio.to_thread(self._trainer.finish_alone)
        await self._be_done()
        log.info("all clients have finished")
        self._is_over = True

    async def _news(self, num_heard: int) -> None:
        """Wait until something has happened, but not for long."""
        if self._is_unknown and self._task is not None:
            await asyncio.wait([self._task], timeout=POLL_S)
            return
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._session.news(num_heard))]
        if self._task is not None:
            waits.append(self._task)
        try:
            await asyncio.wait(waits, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done() and isinstance(waits[0].exception(), LaserError):
                self._is_unknown = True
        finally:
            waits[0].cancel()
            await asyncio.gather(waits[0], return_exceptions=True)
        self._check_coordinator()

    def _check_coordinator(self) -> None:
        """Give up when only the coordinator could help, and it is out of reach for too long."""
        away_s, limit_s = self._session.away_s, self._coordinator_timeout_s
        progress = self._progress
        stuck_s = progress.phase_s if self._task and progress.is_waiting else 0.0
        if self._task is None:
            stuck_s = away_s
        if min(away_s, stuck_s) < self._times.unheard_s:
            self._has_complained = False
            return
        if self._trainer.is_done and away_s > limit_s:
            log.warning("the coordinator is gone; nothing to wait for")
            self._is_over = True
        elif min(away_s, stuck_s) > limit_s:
            raise TrainingStopped(
                f"the coordinator has been out of reach for {away_s:.0f} s, and nobody else can "
                "say how to go on",
                hint="start it again, then this client; it goes on from its last checkpoint",
            )
        if not self._has_complained:
            names = ", ".join(progress.waiting_for) or "the coordinator"
            log.warning(
                "waiting for %s; the coordinator, which would have to change the members, is out "
                "of reach; giving up after %g s",
                names,
                limit_s,
            )
            self._has_complained = True

    async def _register_anew(self) -> None:
        """Come back as another process, with everything that was learnt."""
        session, progress = self._session, self._progress
        directive = session.latest
        why = directive.training.left_out if directive is not None else ""
        log.warning(
            "the others go on without this client%s; it tries to come back",
            f": {printable(why)}" if why else "",
        )
        await asyncio.to_thread(
            self._trainer.note,
            "excluded",
            generation=progress.generation,
            reason=printable(why) or None,
        )
        await self._mesh.close()
        await session.close()
        session.renew()
        give_up_at = time.monotonic() + self._coordinator_timeout_s
        while True:
            try:
                await session.register(wants_run=False)
                break
            except (AddressError, NameTaken, LimitExceeded) as error:
                if time.monotonic() > give_up_at:
                    raise
                log.debug("cannot register: %s", error)
            await asyncio.sleep(session.retry_s)
        self._is_unknown = False
        self._membership.renew()
        progress.has_stopped(0)
        progress.rests()
        self._mesh = self._new_mesh()
        session.open(run=self._record.run)
        if self._trainer.is_loaded:
            self._report(pb.CLIENT_STATE_READY)

    async def _leave(self) -> None:
        """Finish the step or drop it, say so, and wait until the others know."""
        membership, progress = self._membership, self._progress
        if self._is_over or membership.view is None or self._trainer.is_done:
            return
        self._trainer.pause()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._times.leave_step_s)
            await self._interrupt(self._task)
            membership.ended(self._trainer.next_step)
        membership.leave()
        progress.leaves(membership.stopped)
        self._report()
        with suppress(LaserError):  # the others need not wait for it
            await asyncio.to_thread(self._trainer.save)
        with suppress(LaserError, TimeoutError):
            async with asyncio.timeout(self._times.leave_s):
                while not self._has_left(directive := self._session.latest):
                    num_heard = self._session.num_heard
                    if directive is not None:
                        self._answer_while_leaving(directive)
                    await self._session.news(num_heard)
        log.info("left the run at step %d", self._trainer.next_step)
        await asyncio.to_thread(
            self._trainer.note,
            "left",
            generation=progress.generation,
            next_step=self._trainer.next_step,
        )

    def _answer_while_leaving(self, directive: pb.Directive) -> None:
        """A view that comes now has this process in it, and it is not going to train by it."""
        training = directive.training
        view = member_view(training.view, self._roster, self._name, self._session.incarnation)
        self._membership.hear(training.view.generation, training.stop, view)
        if self._progress.has_stopped(self._membership.stopped):
            self._report()

    def _has_left(self, directive: pb.Directive | None) -> bool:
        if directive is None or not directive.HasField("training"):
            return True
        view, mine = directive.training.view, self._session.incarnation
        return all(member.incarnation != mine for member in view.members)

    def _report(self, state: "pb.ClientState.ValueType | None" = None) -> None:
        self._session.report(state=state, run=self._record.run)

    def _new_mesh(self) -> PeerMesh:
        mesh = self._network.open(self._record, self._session.incarnation, self._report_streams)
        self._progress.use(mesh)
        return mesh

    def _report_streams(self) -> None:
        """A stream went up or down: the coordinator should know at once."""
        self._session.report()

    async def _end(self) -> None:
        self._network.close()
        if self._task is not None:
            self._trainer.pause()
            await self._interrupt(self._task)
        await self._mesh.close()
        self._progress.use(None)
        await asyncio.to_thread(self._trainer.close)
