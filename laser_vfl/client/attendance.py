"""This client in one run, from its first view to the coordinator's last word on it.

Members come and go meanwhile, the coordinator too; this client may be left out and come back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from laser_vfl.client.inbox import Interrupted
from laser_vfl.client.links import Links, Reception
from laser_vfl.client.mail import Mail
from laser_vfl.client.membership import Membership
from laser_vfl.client.session import Session, stopped_by
from laser_vfl.client.view import Peer, member_view, read_peers
from laser_vfl.client.work import Work
from laser_vfl.core.errors import AddressError, LaserError, NameTaken, TrainingStopped, printable
from laser_vfl.core.exchange import WIRE_DTYPES
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.audit import Audit
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.sizes import exchange_options

log = logging.getLogger(__name__)

LOOK_S = 1.0
RETRY_S = 0.5
UNHEARD_S = 5.0
"""How long the coordinator may be out of reach before somebody who needs it says so."""

LEAVE_STEP_S = 3.0
"""How long a client that leaves goes on with its step before it drops it."""

LEAVE_S = 5.0
"""How long it waits for the others' leave to go."""


class RunLost(TrainingStopped):
    """The coordinator does not know of the run any more, or has another one."""


class Attendance:
    """Follows what the coordinator says; the work is done in a thread of its own."""

    def __init__(
        self,
        name: str,
        address: str,
        work: Work,
        session: Session,
        reception: Reception,
        credentials: Credentials,
        coordinator_timeout_s: float,
        when_done: Callable[[], Awaitable[None]],
        audit: Audit,
    ) -> None:
        self._name = name
        self._address = address
        self._work = work
        self._session = session
        self._reception = reception
        self._credentials = credentials
        self._coordinator_timeout_s = coordinator_timeout_s
        self._when_done = when_done
        self._audit = audit
        self._roster = work.record.roster
        self._membership = Membership()
        self._links = self._new_links()
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
                await self._heed(self._session.latest)
                await self._act()
                if not self._is_over:
                    await self._news(num_heard)
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            await asyncio.shield(self._end())

    async def _heed(self, directive: pb.Directive | None) -> None:
        """Take in what the coordinator said last."""
        if directive is None or self._is_unknown:
            return
        run = self._work.record.run
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
        self._links.meet(read_peers(training, self._roster, self._name))
        self._work.prune(training.complete)
        if view is None and training.HasField("resume") and not self._membership.running:
            await self._be_ready(training.resume)

    async def _be_ready(self, resume: int) -> None:
        """Have the state to join with: what is in memory, or a checkpoint up to a step."""
        work = self._work
        if not work.is_loaded or work.next_step > resume:
            await asyncio.to_thread(work.load, resume)
            self._membership.next_step = work.next_step
        if self._membership.view is None:
            self._session.progress.rests()
            self._report(pb.CLIENT_STATE_READY)

    async def _act(self) -> None:
        """Do what has become possible or necessary."""
        membership, task = self._membership, self._task
        if task is not None and (membership.must_stop or self._is_unknown):
            self._links.inbox.fail(Interrupted())
        if task is not None and task.done():
            self._task = None
            await self._work_ended(task)
        if self._task is not None:
            return
        if self._is_unknown or membership.is_excluded:
            await self._register_anew()
        elif membership.may_begin and not self._work.is_loaded:
            await self._register_anew()  # the view takes us for somebody who has a state
        elif membership.may_begin:
            self._begin()
        progress = self._session.progress
        if progress.stopped != membership.stopped:
            progress.stopped = membership.stopped
            self._report()

    async def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._membership.ended(self._work.next_step)
        try:
            task.result()
        except Interrupted:
            log.info("stopped before step %d", self._work.next_step)
            generation = self._session.progress.generation
            self._work.note("stopped", generation=generation, next_step=self._work.next_step)
            return
        await self._be_done()
        self._report(pb.CLIENT_STATE_FINISHED)

    async def _interrupt(self, task: asyncio.Task[None]) -> None:
        """End what is under way, however far it is."""
        self._links.inbox.fail(Interrupted())
        await asyncio.gather(task, return_exceptions=True)
        self._task = None

    async def _be_done(self) -> None:
        if not self._is_prepared:
            await self._when_done()
        self._is_prepared = True

    def _begin(self) -> None:
        """Train by the view that has come."""
        progress, work = self._session.progress, self._work
        view = self._membership.begin()
        self._links.begin(view)
        progress.generation = view.generation
        progress.members = tuple(sorted(view.addresses, key=self._roster.index))
        progress.stopped = 0
        log.info(
            "generation %d: %s, from step %d on",
            view.generation,
            ", ".join(progress.members),
            self._membership.next_step,
        )
        work.note(
            "view",
            generation=view.generation,
            members=progress.members,
            next_step=self._membership.next_step,
        )
        if work.is_done:
            self._membership.ended(work.next_step)
            self._report(pb.CLIENT_STATE_FINISHED)
            return
        settings = work.record.settings
        wire_dtype = WIRE_DTYPES[settings.wire_precision]
        mail = Mail(self._links, view, progress, wire_dtype, settings.max_norm)
        progress.starts_phase()
        self._task = asyncio.create_task(asyncio.to_thread(work.run, view, mail))
        self._report(pb.CLIENT_STATE_RUNNING)

    async def _finish(self) -> None:
        """All members have finished; perhaps without us."""
        if self._task is not None:
            await self._interrupt(self._task)
        if not self._work.is_done:
            log.warning("the others have finished without this client; its model is what it has")
            if not self._work.is_loaded:
                await asyncio.to_thread(self._work.load)
            await asyncio.to_thread(self._work.finish_alone)
        await self._be_done()
        log.info("all clients have finished")
        self._is_over = True

    async def _news(self, num_heard: int) -> None:
        """Wait until something has happened; look after a while all the same."""
        if self._is_unknown and self._task is not None:
            await asyncio.wait([self._task], timeout=LOOK_S)
            return
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._session.news(num_heard))]
        if self._task is not None:
            waits.append(self._task)
        try:
            await asyncio.wait(waits, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done() and isinstance(waits[0].exception(), LaserError):
                self._is_unknown = True
        finally:
            waits[0].cancel()
            await asyncio.gather(waits[0], return_exceptions=True)
        self._mind_the_coordinator()

    def _mind_the_coordinator(self) -> None:
        """Training goes on without it, but who is stuck needs it, and gives up at some time."""
        away_s, limit_s = self._session.away_s, self._coordinator_timeout_s
        progress = self._session.progress
        stuck_s = progress.phase_s if self._task and progress.is_waiting else 0.0
        if self._task is None:
            stuck_s = away_s
        if min(away_s, stuck_s) < UNHEARD_S:
            self._has_complained = False
            return
        if self._work.is_done and away_s > limit_s:
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
        session, progress = self._session, self._session.progress
        directive = session.latest
        why = directive.training.left_out if directive is not None else ""
        log.warning(
            "the others go on without this client%s; it tries to come back",
            f": {printable(why)}" if why else "",
        )
        self._work.note("excluded", generation=progress.generation, reason=printable(why) or None)
        await self._links.close()
        await session.close()
        session.renew()
        give_up_at = time.monotonic() + self._coordinator_timeout_s
        while True:
            try:
                await session.register(wants_run=False)
                break
            except (AddressError, NameTaken) as error:
                if time.monotonic() > give_up_at:
                    raise
                log.debug("cannot register: %s", error)
            await asyncio.sleep(RETRY_S)
        self._is_unknown = False
        self._membership.renew()
        progress.stopped = 0
        progress.rests()
        self._links = self._new_links()
        session.open(run=self._work.record.run)
        if self._work.is_loaded:
            self._report(pb.CLIENT_STATE_READY)

    async def _leave(self) -> None:
        """Finish the step or drop it, say so, and wait until the others know."""
        membership, progress = self._membership, self._session.progress
        if self._is_over or membership.view is None or self._work.is_done:
            return
        self._work.pausing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LEAVE_STEP_S)
            await self._interrupt(self._task)
            membership.ended(self._work.next_step)
        membership.leave()
        progress.leaving, progress.stopped = True, membership.stopped
        self._report()
        with suppress(LaserError):  # the others need not wait for it
            await asyncio.to_thread(self._work.save)
        with suppress(LaserError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while not self._has_left(directive := self._session.latest):
                    num_heard = self._session.num_heard
                    if directive is not None:
                        self._answer_while_leaving(directive)
                    await self._session.news(num_heard)
        log.info("left the run at step %d", self._work.next_step)
        self._work.note("left", generation=progress.generation, next_step=self._work.next_step)

    def _answer_while_leaving(self, directive: pb.Directive) -> None:
        """A view that comes now has this process in it, and it is not going to train by it."""
        training = directive.training
        view = member_view(training.view, self._roster, self._name, self._session.incarnation)
        self._membership.hear(training.view.generation, training.stop, view)
        progress, stopped = self._session.progress, self._membership.stopped
        if progress.stopped != stopped:
            progress.stopped = stopped
            self._report()

    def _has_left(self, directive: pb.Directive | None) -> bool:
        if directive is None or not directive.HasField("training"):
            return True
        view, mine = directive.training.view, self._session.incarnation
        return all(member.incarnation != mine for member in view.members)

    def _report(self, state: "pb.ClientState.ValueType | None" = None) -> None:
        self._session.report(state=state, run=self._work.record.run)

    def _new_links(self) -> Links:
        me = Peer(
            self._roster.index(self._name), self._name, self._session.incarnation, self._address
        )
        record = self._work.record
        links = Links(
            record.run,
            me,
            self._roster,
            self._credentials,
            exchange_options(record.settings, len(self._roster)),
            self._look,
            self._accuse,
            pair_keys=record.settings.masked_gradients or record.settings.method == "vfedtrans",
            traffic=self._session.progress.meters.traffic,
        )
        self._session.progress.use(links)
        self._reception.open(links)
        return links

    def _look(self) -> None:
        """A stream went up or down: the coordinator should know at once."""
        self._session.report()

    def _accuse(self, peer: str, reason: str) -> None:
        """A peer broke the contract: that should be known when the log is gone."""
        labels = {"run": self._work.record.run, "peer": peer, "reason": reason}
        self._audit.count("offence", labels, count=1)

    async def _end(self) -> None:
        self._reception.close()
        if self._task is not None:
            self._work.pausing.set()
            await self._interrupt(self._task)
        await self._links.close()
        self._session.progress.use(None)
        self._work.close()
