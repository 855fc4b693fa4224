"""One run after another: wait until one is wanted, join it, train, publish, and wait again."""

import asyncio
import logging
import math
import time
from dataclasses import dataclass

import torch

from laser_vfl.client.aligning import Aligned, Aligner
from laser_vfl.client.allocation import freed_memory_returned
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.attendance import Attendance, RunLost
from laser_vfl.client.block import Block, OwnModels, build_learner, build_models
from laser_vfl.client.comeback import Comeback
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.dry_runs import DryRuns
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.client.joining import Wish, join
from laser_vfl.client.links import Reception
from laser_vfl.client.listing import Keys
from laser_vfl.client.own_tables import OwnTables, lists_of
from laser_vfl.client.peer_server import PeerServer
from laser_vfl.client.progress import Progress
from laser_vfl.client.ring_call import RingCall
from laser_vfl.client.run_record import RunRecord
from laser_vfl.client.serving import Serving
from laser_vfl.client.session import RunStopped, Session, Welcome
from laser_vfl.client.work import Work
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
    DataError,
    LaserError,
    LimitExceeded,
    MismatchError,
    NotReady,
    TrainingStopped,
    printable,
)
from laser_vfl.core.learner import Learner
from laser_vfl.core.place import Place
from laser_vfl.core.purpose import Purpose, Scheme
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.wire.audit import Audit
from laser_vfl.wire.credentials import Credentials

log = logging.getLogger(__name__)

AFTER_FAILURE_S = 5.0
"""How long a serving client waits before it tries again what it could not do."""


@dataclass(frozen=True)
class Means:
    """What a client takes part with, the same in every run."""

    config: ClientConfig
    own: OwnModels
    device: torch.device
    credentials: Credentials
    state: StateDirectory
    session: Session
    serving: Serving
    peer_server: PeerServer
    reception: Reception
    aligner: Aligner
    keys: Keys
    forgotten: Forgotten
    audit: Audit
    address: str
    """Where peers reach this client."""


class Participation:
    """This client's part in training. Once it has a model, no failure here ends the daemon."""

    def __init__(self, means: Means, block: Block) -> None:
        self.activity = "starting"
        self.run_id = ""
        self.roster: tuple[str, ...] = ()
        """The federation's, once this client has registered."""
        self._means = means
        self._tables = OwnTables(means.config, means.keys, means.forgotten, block)
        self._is_known = False
        self._complaint = ""
        self._wish = Wish(wants_run=False, patience_s=means.config.connect_timeout_s)
        self._comeback = Comeback(means.state)
        self._retry = False
        """Whether the run was lost, and the next one is wanted just as much."""
        self._published: asyncio.Future[None] | None = None
        self._scheme: Scheme = "ecdh"
        self._dry_runs = DryRuns()

    @property
    def progress(self) -> Progress:
        """What happened in the run under way, or in the last one."""
        return self._means.session.progress

    @property
    def next_step(self) -> int:
        """How far the run under way is."""
        return self.progress.next_step if self.run_id else 0

    @property
    def num_steps(self) -> int:
        """How many steps the run under way has."""
        return self.progress.num_steps if self.run_id else 0

    async def run(self, *, train_now: bool, once: bool = False) -> None:
        """Take part in runs until cancelled, or in one only."""
        serving, session = self._means.serving, self._means.session
        self._wish.wants_run |= train_now or serving.current is None
        self._tables.is_fresh = self._wish.wants_run
        while True:
            farewell = ""
            try:
                await self._take_part()
                if self._retry:
                    self._retry = self._tables.is_fresh = False
                    session.renew()
                    await session.close("the run was lost")
                    continue
                self._settle(None)
            except Exception as error:
                if once or serving.current is None:
                    raise
                self._complain(error)
                farewell = error.message if isinstance(error, LaserError) else "it failed"
            finally:
                self.activity, self.run_id = "idle", ""
            if once:
                return
            self._wish.wants_run = False
            self._tables.is_fresh = False
            await session.close(farewell)
            if farewell:
                session.renew()  # what this process was in a run, it is not any more
                await asyncio.sleep(AFTER_FAILURE_S)

    async def fit(self) -> None:
        """Want a run, and wait until its model is published."""
        if self._published is None:
            self._published = asyncio.get_running_loop().create_future()
        self._wish.wants_run = True
        self._wish.patience_s = self._means.config.connect_timeout_s
        self._wish.since = time.monotonic()
        self._wish.changed.set()
        await asyncio.shield(self._published)

    async def accept(self, welcome: Welcome) -> None:
        """Check that the models fit what the coordinator demands, and expect frames to match."""
        config = self._means.config
        if welcome.scheme == "hmac" and config.id_secret_file is None:
            raise MismatchError(
                "this federation compares ids under a shared secret (alignment: hmac)",
                where=config.where("name"),
                hint="add id_secret_file, with the secret that all its clients have",
            )
        if config.roster is not None and welcome.roster != tuple(config.roster):
            raise MismatchError(
                f"the coordinator's clients are {', '.join(welcome.roster)}",
                where=config.where("roster"),
                hint="this client joins only with the roster of its own configuration; correct one",
            )
        if welcome.scheme == "hmac":
            log.warning("ids are compared under the secret that all clients share, not by ecdh")
        self._scheme, self.roster = welcome.scheme, welcome.roster
        self._dry_runs.tell_all(NotReady("the coordinator lost touch", hint="ask again"))
        me = welcome.roster.index(config.name)
        has_labels = self._tables.block.labels is not None
        heads = 1 << me if has_labels else 0  # whoever else has labels, this one might
        place = Place(me, len(welcome.roster), heads, welcome.settings)
        build_models(config, self._tables.block, place, self._means.own)
        await self._means.peer_server.expect(welcome.settings, len(welcome.roster))
        if self._is_known:  # so this is not the start, and time has passed
            self._tables.is_fresh = False
        self._is_known = True
        self.activity = "idle"

    async def prepare(self) -> None:
        """Read the tables, unless they have just been read; return when an alignment may begin."""
        self.activity = "gathering"
        while True:
            try:
                self._means.aligner.ledger.check(Purpose.RUN)
                await self._tables.refresh()
                return
            except (DataError, LimitExceeded) as error:
                self.activity = f"cannot take part in a run: {error}"
                log.error("%s; trying again", self.activity)
                await asyncio.sleep(AFTER_FAILURE_S)

    async def attend(self, call: RingCall) -> Aligned:
        """Take part in an alignment."""
        before, self.activity = self.activity, "aligning"
        try:
            with freed_memory_returned():
                aligned = await self._align(call)
        except LaserError as error:
            # One that was given up, and not refused, is begun anew with those who are left.
            is_final = isinstance(error, AlignmentRefused) or not isinstance(error, AlignmentOver)
            if call.purpose is Purpose.DRY_RUN and is_final:
                self._dry_runs.tell(error, call.number)
            raise
        finally:
            self.activity = before
        if call.purpose is Purpose.DRY_RUN:
            self._dry_runs.tell(aligned, call.number)
        elif call.purpose is Purpose.NEWCOMERS and aligned.naming is not None:
            await self._means.serving.rename(aligned.naming)
            log.info("people are named by alignment %s from now on", call.id)
        return aligned

    def hear_refused(self, number: int, reason: str) -> None:
        """Tell who waits for a dry run that may have been refused before this client was at it."""
        self._dry_runs.tell(AlignmentRefused(printable(reason)), number)

    async def dry_run(self) -> Aligned:
        """Align the tables as they are now with everybody who is there; train nothing."""
        return await self._dry_runs.ask(self._means.session)

    async def _align(self, call: RingCall) -> Aligned:
        means, scheme = self._means, self._scheme
        if call.purpose is Purpose.NEWCOMERS:
            edition = means.serving.current
            known = edition.naming if edition else None
            if known is None or (known.run, known.members) != (call.run, call.names):
                raise DataError(
                    f"{means.config.name} has no scalar of run {call.run} with these members",
                    hint="train again with `laser-vfl retrain`",
                )
            if edition is None or edition.model.roster != self.roster:
                raise DataError(
                    "the roster has changed since the training, and names do not fit it any more",
                    hint="train again with `laser-vfl retrain`",
                )
            newcomers = await asyncio.to_thread(means.serving.newcomers)
            return await means.aligner.align(call, scheme, {"serve": newcomers}, known)
        if means.state.has_model(call.id):
            raise ContractError("the coordinator calls to a run that has been")
        if call.purpose is Purpose.RUN:
            await self._tables.leave_out_forgotten()
        is_dry = call.purpose is Purpose.DRY_RUN
        block = await self._tables.as_they_are() if is_dry else self._tables.block
        order = means.keys.order if scheme == "ecdh" else None
        lists = await asyncio.to_thread(lists_of, block, means.serving.served_people, order)
        return await means.aligner.align(call, scheme, lists)

    @property
    def unfinished_run(self) -> str:
        """The run that this client could come back to, if any."""
        return self._comeback.run

    async def keep(self, aligned: Aligned, settings: TrainingSettings) -> RunRecord:
        """Put on disk what is needed to come back to a run."""
        return await self._comeback.keep(aligned, settings, self.roster, self._tables.block)

    async def recall(self, run: str) -> RunRecord | None:
        """Return what is needed to come back to a run, if it is there and fits the tables."""
        if run != self._comeback.run or (record := await self._comeback.read()) is None:
            return None
        await self._tables.refresh()
        fits = await self._comeback.fits(record, self.roster, self._tables.block)
        return record if fits else None

    async def _take_part(self) -> None:
        """Take part in one run, from waiting for it to publishing its model."""
        serving, session = self._means.serving, self._means.session
        session.progress.reset(self._comeback.checkpoints)
        if serving.current is not None and not self._wish.wants_run:
            self._wish.patience_s = math.inf
        try:
            await self._join_and_train()
        except RunStopped as stopped:
            if stopped.run == self._comeback.run:
                self._comeback.end()
            raise

    async def _join_and_train(self) -> None:
        config, serving, session = self._means.config, self._means.serving, self._means.session
        joined = await join(session, config.name, self, self._wish)
        self._dry_runs.tell_all(NotReady("a run has started", hint="ask again when it is over"))
        record = joined.record
        self.activity, self.run_id = "training", record.run
        session.progress.starts_phase()
        if not joined.is_new:
            log.info("coming back to run %s", record.run)
        if joined.is_new:
            await self._comeback.rewrite(record)  # who has labels is known now
        work = await asyncio.to_thread(self._build_work, record)
        work.is_loaded = joined.is_new
        if self._means.state.has_model(record.run):
            work.adopt_model()
        outcome = "left"
        try:
            self._means.audit.note("joined", run=record.run, members=joined.members)
            await self._attend_run(work)
            outcome = "finished"
        except (RunLost, DataError) as error:
            outcome = error.message
            log.error("%s; waiting for the next run", error)
            if isinstance(error, RunLost):
                self._comeback.end()
            else:
                self._comeback.decline()
            self._retry = True
            return
        except LaserError as error:
            outcome = error.message
            raise
        finally:
            self._means.audit.note(
                "left", run=record.run, members=session.progress.members, reason=outcome
            )
        await serving.publish(record.run)
        self._comeback.end()

    async def _attend_run(self, work: Work) -> None:
        means, run = self._means, work.record.run

        async def when_done() -> None:
            means.serving.set_block(self._tables.block)
            await means.serving.edition(run)
            self.activity = "waiting for the others to finish"

        attendance = Attendance(
            means.config.name,
            means.address,
            work,
            means.session,
            means.reception,
            means.credentials,
            means.config.coordinator_timeout_s,
            when_done,
            means.audit,
        )
        await attendance.run()

    def _build_work(self, record: RunRecord) -> Work:
        means = self._means
        session = means.session
        heads = record.heads
        has_labels = self._tables.block.labels is not None
        if not heads and has_labels:  # of a run that is over; only ours counts
            heads = (means.config.name,)

        def build() -> Learner:
            return build_learner(
                means.config,
                self._tables.block,
                record.settings,
                record.roster,
                heads,
                means.device,
                means.own,
                alignment=record.tables["train"],
                own_key=means.state.own_key(),
            )

        return Work(
            means.config,
            self._tables.block,
            record,
            build,
            means.state,
            means.own,
            session.progress,
        )

    def _complain(self, error: Exception) -> None:
        """Log a failure that serving survives, once if it comes again and again."""
        if not isinstance(error, LaserError):
            log.exception("training failed; this is a bug, or one of the model")
            self._settle(TrainingStopped("training failed", hint="see the log"))
            return
        if str(error) != self._complaint:
            log.error(
                "%s (the model of run %s is served on)", error, self._means.serving.served_run
            )
        self._complaint = str(error)
        self._settle(error)

    def _settle(self, error: LaserError | None) -> None:
        """Tell whoever waits for a model how it went."""
        waiter, self._published = self._published, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
