"""One run after another: wait until one is wanted, join it, train, publish, and wait again."""

import asyncio
import logging
from contextlib import suppress

from laser_vfl.client.alignment.aligner import Aligned
from laser_vfl.client.alignment.ring_call import RingCall
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.run.activity import (
    ALIGNING,
    FINISHING,
    GATHERING,
    IDLE,
    IDLE_WITHOUT_MODEL,
    STARTING,
    TRAINING,
    CurrentActivity,
    awaiting_approval,
    unable,
)
from laser_vfl.client.run.dry_runs import DryRuns
from laser_vfl.client.run.joining import RunRequest, join
from laser_vfl.client.run.own_alignments import OwnAlignments
from laser_vfl.client.run.resumable_run import ResumableRun
from laser_vfl.client.run.run_checks import RunChecks
from laser_vfl.client.run.run_member import RunLost
from laser_vfl.client.run.run_training import RunTraining
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.session.coordinator_session import RegistrationReply, RunStopped, Session
from laser_vfl.client.session.failure_notices import RUN_LOST, failure_notice
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.client.tables.own_tables import OwnTables
from laser_vfl.client.training.trainer import Trainer
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.alignment_purpose import AlignmentPurpose, Scheme
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    DataError,
    LaserError,
    LimitExceeded,
    MismatchError,
    NotReady,
    TrainingStopped,
    printable,
)
from laser_vfl.data import EARLIER_VERSION, VERSION
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)


class RunSupervisor:
    """This client's part in training. Once it has a model, no failure here ends the daemon."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        session: Session,
        tables: OwnTables,
        alignments: OwnAlignments,
        checks: RunChecks,
        training: RunTraining,
        resumable: ResumableRun,
        serving: ModelRegistry,
        times: WaitingTimes = DEFAULT_TIMES,
    ) -> None:
        self.now = STARTING
        """What this client does now."""
        self.run_id = ""
        self.roster: tuple[str, ...] = ()
        """The federation's, once this client has registered."""
        self.progress = training.progress
        """What happened in the run under way, or in the last one."""
        self._config = config
        self._session = session
        self._tables = tables
        self._alignments = alignments
        self._checks = checks
        self._training = training
        self._resumable = resumable
        self._serving = serving
        self._times = times
        self._settings: TrainingSettings | None = None
        """Those of the next run, as the coordinator has last said them."""
        self._is_known = False
        self._complaint = ""
        self._request = RunRequest(wants_run=False, patience_s=config.connect_timeout_s)
        self._leaves = False
        """Whether this client ends with its first run, and so never predicts."""
        self._retry = False
        """Whether the run was lost, and the next one is wanted just as much."""
        self._published: asyncio.Future[None] | None = None
        self._scheme: Scheme = "ecdh"
        self._dry_runs = DryRuns()

    @property
    def activity_text(self) -> str:
        """What this client does now, in words."""
        return self.now.text

    @property
    def next_step(self) -> int:
        """How far the run under way is."""
        return self.progress.num_trained if self.run_id else 0

    @property
    def num_steps(self) -> int:
        """How many steps the run under way has."""
        return self.progress.num_steps if self.run_id else 0

    async def run(self, *, train_now: bool, once: bool = False) -> None:
        """Take part in runs until cancelled, or in one only."""
        serving, session = self._serving, self._session
        if train_now or not serving.is_trained:
            self._request.want()
        if not self._request.wants_run:
            self._tables.mark_stale()
        self._leaves = once
        while True:
            farewell = problem = ""
            try:
                await self._take_part()
                if self._retry:
                    self._retry = False
                    self._tables.mark_stale()
                    session.renew()
                    await session.close(RUN_LOST)
                    continue
                self._settle(None)
            except Exception as error:
                if once or not serving.is_trained:
                    raise
                self._complain(error)
                farewell = failure_notice(error)
                problem = "" if isinstance(error, RunStopped) else farewell
            finally:
                self.now, self.run_id = IDLE, ""
            if once:
                return
            self._request.withdraw()
            self._tables.mark_stale()
            await session.close(farewell, problem)
            if farewell:
                session.renew()  # this process is no member of the run any more
                await asyncio.sleep(self._times.after_failure_s)

    async def fit(self) -> None:
        """Want a run, and wait until its model is published."""
        if self._published is None:
            self._published = asyncio.get_running_loop().create_future()
        self._request.want_now(self._config.connect_timeout_s)
        await asyncio.shield(self._published)

    async def accept(self, reply: RegistrationReply) -> None:
        """Check that the models fit what the coordinator demands, and expect frames to match."""
        checks = self._checks
        await checks.check_terms(reply)
        if self._serving.current is None and not checks.is_charged(self._resumable.run):
            await checks.check_spent(reply.settings)
        checks.check_scheme(reply.scheme)
        self._scheme, self.roster = reply.scheme, reply.roster
        self._settings = reply.settings
        self._dry_runs.tell_all(NotReady("the coordinator lost touch", hint="ask again"))
        await self._training.expect(reply, self._tables.block)
        if self._is_known:  # it registers again, so time has passed
            self._tables.mark_stale()
        self._is_known = True
        self.now = IDLE

    async def prepare(self) -> None:
        """Read the tables, unless they have just been read; return when an alignment may begin."""
        self.now = GATHERING
        while True:
            try:
                await self._check_spent()
                await self._alignments.prepare()
                self._session.report(problem="")
                return
            except (DataError, LimitExceeded, TrainingStopped) as error:
                self.now = unable(error)
                log.error("%s; trying again", self.now.text)
                self._session.report(problem=failure_notice(error))
                await asyncio.sleep(self._times.after_failure_s)

    async def _check_spent(self) -> None:
        """Raise if the noise of one more run would be too much."""
        assert self._settings is not None
        await self._checks.check_spent(self._settings)

    def run_unwanted(self) -> None:
        """Rest until a run is wanted again; the tables are read anew for that one."""
        self._tables.mark_stale()
        self.now = self._resting

    async def run_given_up(self) -> None:
        """Forget a run that others could not start, and take back the count of its alignment."""
        await asyncio.to_thread(self._alignments.give_back)
        await self._resumable.end()

    async def attend(self, call: RingCall) -> Aligned:
        """Take part in an alignment."""
        before, self.now = self.now, ALIGNING
        try:
            if call.purpose is AlignmentPurpose.RUN:
                await self._check_spent()
                await self._alignments.prepare()  # time may have passed since a cancelled run
            aligned = await self._alignments.attend(call, self._scheme, self.roster)
        except LaserError as error:
            # One that was given up, and not refused, is begun anew with those who are left.
            is_final = isinstance(error, AlignmentRefused) or not isinstance(error, AlignmentOver)
            if call.purpose is AlignmentPurpose.DRY_RUN and is_final:
                self._dry_runs.tell(error, call.number)
            raise
        finally:
            self.now = before
        if call.purpose is AlignmentPurpose.DRY_RUN:
            self._dry_runs.tell(aligned, call.number)
        elif call.purpose is AlignmentPurpose.UNALIGNED_IDS and aligned.pseudonyms is not None:
            await self._serving.rename(aligned.pseudonyms)
            log.info("people are named by alignment %s from now on", call.id)
        return aligned

    def hear_refused(self, number: int, reason: str) -> None:
        """Tell who waits for a dry run that may have been refused before this client was at it."""
        self._dry_runs.tell(AlignmentRefused(printable(reason)), number)

    async def dry_run(self) -> Aligned:
        """Align the tables as they are now with everybody who is there; train nothing."""
        return await self._dry_runs.ask(self._session)

    def hear_own_request(self, state: "pb.RequestState.ValueType") -> None:
        """Say what has become of the run that this client asks for; its start alone starts none."""
        self._tables.mark_stale()
        if state == pb.REQUEST_STATE_REJECTED:
            error = TrainingStopped(
                "the run that this client asks for was rejected at the coordinator",
                hint="ask its owner why",
            )
            if self._leaves:
                raise error
            self.now = self._resting
            log.warning("%s", error)
            if self._serving.is_trained:
                self._request.withdraw()
            else:
                self._request.want()
            self._settle(error)
        elif state == pb.REQUEST_STATE_PENDING:
            self.now = awaiting_approval(has_model=self._serving.is_trained)
            log.warning(
                "a run does not start by itself here: this federation has trained before, or an "
                "operator has cancelled its first run; the one that this client asks for starts "
                "when an operator of the coordinator approves it "
                "(laser-vfl runs approve %s --config coordinator.yaml) or asks for one of "
                "everybody (laser-vfl retrain --config coordinator.yaml)",
                self._config.name,
            )
        else:
            self.now = self._resting

    @property
    def _resting(self) -> CurrentActivity:
        """What this client does while it waits until somebody else wants a run."""
        return IDLE if self._serving.is_trained else IDLE_WITHOUT_MODEL

    @property
    def unfinished_run(self) -> str:
        """The run that this client could come back to, if any."""
        return self._resumable.run

    async def keep(self, aligned: Aligned, settings: TrainingSettings) -> RunRecord:
        """Put on disk what is needed to come back to a run."""
        return await self._resumable.keep(aligned, settings, self.roster, self._tables.block)

    async def recall(self, run: str) -> RunRecord | None:
        """Return what is needed to come back to a run, if it is there and fits the tables."""
        if run != self._resumable.run or (record := await self._resumable.read()) is None:
            return None
        try:
            self._checks.check_record(record)
        except MismatchError as error:
            log.error("%s; this client does not come back to run %s", error, run)
            self._resumable.decline()
            return None
        await self._tables.refresh()
        if not await self._resumable.is_of(record, self._tables.block):
            with suppress(DataError):  # perhaps a release before has begun the run
                await self._tables.encode_as(EARLIER_VERSION)
        fits = await self._resumable.fits(record, self.roster, self._tables.block)
        if not fits:
            await self._tables.encode_as(VERSION)
        return record if fits else None

    async def _take_part(self) -> None:
        """Take part in one run, from waiting for it to publishing its model."""
        self.progress.reset(self._resumable.checkpoints)
        if self._serving.is_trained and not self._request.wants_run:
            self._request.wait_forever()
        try:
            await self._join_and_train()
        except RunStopped as stopped:
            if stopped.run == self._resumable.run:
                await self._resumable.end()
            raise

    async def _join_and_train(self) -> None:
        joined = await join(self._session, self._config.name, self, self._request)
        self._dry_runs.tell_all(NotReady("a run has started", hint="ask again when it is over"))
        record = joined.record
        self.now, self.run_id = TRAINING, record.run
        self.progress.starts_phase()
        await self._checks.charge(record, is_new=joined.is_new)
        if not joined.is_new:
            log.info("coming back to run %s", record.run)
        if joined.is_new:
            await self._resumable.rewrite(record)  # who has labels is known now
        trainer = await self._training.trainer(record, self._tables.block, is_new=joined.is_new)
        try:
            await self._train(trainer, joined.members)
        except (RunLost, DataError) as error:
            log.error("%s; waiting for the next run", error)
            if isinstance(error, RunLost):
                await self._resumable.end()
            else:
                self._resumable.decline()
            self._retry = True
            return
        await self._serving.adopt(record.run, asks_peers=not self._leaves)
        await self._resumable.end()

    async def _train(self, trainer: Trainer, members: tuple[str, ...]) -> None:
        """Train until all have finished. The model of a run that comes to nothing is given up."""
        run = trainer.record.run

        async def when_done() -> None:
            await self._serving.trained(run, self._tables.block)
            self.now = FINISHING

        try:
            await self._training.run(trainer, members, when_done)
        except (RunLost, RunStopped):
            await self._serving.give_up(run)
            raise

    def _complain(self, error: Exception) -> None:
        """Log a failure that serving survives, once if it comes again and again."""
        if not isinstance(error, LaserError):
            log.exception("training failed; this is a bug, or one of the model")
            self._settle(TrainingStopped("training failed", hint="see the log"))
            return
        if str(error) != self._complaint:
            log.error("%s (the model of run %s is served on)", error, self._serving.served_run)
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
