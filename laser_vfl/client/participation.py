"""One run after another: wait until one is wanted, join it, train, publish, and wait again."""

import asyncio
import logging
import math
import time
from dataclasses import dataclass, replace

import torch

from laser_vfl.client.aligning import Aligned, Aligner
from laser_vfl.client.allocation import freed_memory_returned
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import (
    Block,
    OwnModels,
    build_learner,
    build_models,
    file_stamps,
    load_block,
)
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.dry_runs import DryRuns
from laser_vfl.client.joining import Joined, Wish, join
from laser_vfl.client.links import Links, Reception
from laser_vfl.client.listing import NOBODY, Keys, Listing, People, listing
from laser_vfl.client.mail import Mail
from laser_vfl.client.ring_call import RingCall
from laser_vfl.client.run import stay_for_the_others, train_and_write, unless_stopped
from laser_vfl.client.serving import Serving
from laser_vfl.client.session import Session, Welcome
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
)
from laser_vfl.core.exchange import WIRE_DTYPES
from laser_vfl.core.purpose import Purpose, Scheme
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.protocol import FRAME_OPTIONS

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
    reception: Reception
    aligner: Aligner
    keys: Keys


class Participation:
    """This client's part in training. Once it has a model, no failure here ends the daemon."""

    def __init__(self, means: Means, block: Block) -> None:
        self.activity = "starting"
        self.run_id = ""
        self.roster: tuple[str, ...] = ()
        """The federation's, once this client has registered."""
        self._means = means
        self._block = block
        self._is_fresh = True
        """Whether the block is what the tables hold; not after a time of waiting."""
        self._is_known = False
        self._complaint = ""
        self._wish = Wish(wants_run=False, patience_s=means.config.connect_timeout_s)
        self._published: asyncio.Future[None] | None = None
        self._scheme: Scheme = "ecdh"
        self._dry_runs = DryRuns()

    @property
    def next_step(self) -> int:
        """How far the run under way is."""
        return self._means.session.next_step if self.run_id else 0

    @property
    def num_steps(self) -> int:
        """How many steps the run under way has."""
        return self._means.session.num_steps if self.run_id else 0

    async def run(self, *, train_now: bool, once: bool = False) -> None:
        """Take part in runs until cancelled, or in one only."""
        serving, session = self._means.serving, self._means.session
        self._wish.wants_run |= train_now or serving.current is None
        self._is_fresh = self._wish.wants_run
        while True:
            farewell = ""
            try:
                await self._take_part()
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
            self._is_fresh = False
            await session.close(farewell)
            if farewell:
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

    def accept(self, welcome: Welcome) -> None:
        """Check that the models fit what the coordinator demands."""
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
        place = welcome.roster.index(config.name)
        build_models(config, self._block, welcome.settings, place, self._means.own)
        if self._is_known:  # so this is not the start, and time has passed
            self._is_fresh = False
        self._is_known = True
        self.activity = "idle"

    async def prepare(self) -> None:
        """Read the tables, unless they have just been read; return when an alignment may begin."""
        self.activity = "gathering"
        while True:
            try:
                self._means.aligner.ledger.check(Purpose.RUN)
                if not self._is_fresh:
                    self._block = await asyncio.to_thread(self._load_block)
                    self._is_fresh = True
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
        block = self._block
        if call.purpose is Purpose.DRY_RUN and block.stamps != file_stamps(means.config):
            block = await asyncio.to_thread(self._load_block)
        order = means.keys.order if scheme == "ecdh" else None
        lists = await asyncio.to_thread(_lists, block, means.serving.served_people, order)
        return await means.aligner.align(call, scheme, lists)

    def _load_block(self) -> Block:
        return load_block(self._means.config, self._means.keys.digest)

    async def _take_part(self) -> None:
        """Take part in one run, from waiting for it to publishing its model."""
        config, serving, session = self._means.config, self._means.serving, self._means.session
        if serving.current is not None and not self._wish.wants_run:
            self._wish.patience_s = math.inf
        joined = await join(session, config.name, self, self._wish)
        self._dry_runs.tell_all(NotReady("a run has started", hint="ask again when it is over"))
        view = joined.view
        self.activity, self.run_id = "training", view.run
        links = Links(view, self._means.credentials, FRAME_OPTIONS)
        self._means.reception.open(links)
        try:
            if joined.aligned.naming is not None:  # before the model, so that none is without
                await asyncio.to_thread(self._means.state.write_naming, joined.aligned.naming)
            await self._train(joined, links)
            serving.set_block(self._block)
            await serving.edition(view.run)
            self.activity = "waiting for the others to finish"
            if await stay_for_the_others(session) or serving.current is None:
                await serving.publish(view.run)
        finally:
            self._means.reception.close()
            await asyncio.shield(links.close())

    async def _train(self, joined: Joined, links: Links) -> None:
        means, session = self._means, self._means.session
        learner = await asyncio.to_thread(
            build_learner,
            means.config,
            self._block,
            joined.settings,
            joined.roster,
            joined.view.heads,
            means.device,
            means.own,
        )
        session.report(state=pb.CLIENT_STATE_RUNNING)
        wire_dtype = WIRE_DTYPES[joined.settings.wire_precision]
        mail = Mail(links, joined.view, session, wire_dtype, joined.settings.step_timeout_s)
        work = asyncio.to_thread(
            train_and_write,
            means.config,
            self._block,
            joined,
            learner,
            mail,
            session,
            means.state,
            means.own,
        )
        await unless_stopped(asyncio.create_task(work), session, links)

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


def _lists(block: Block, served: People, order: bytes | None) -> dict[str, Listing]:
    """List the people of each table; those to serve are everybody whom this client knows."""
    tables = [table for table in (block.train, block.test) if table is not None]
    train, *test = [People(table.ids, table.digests) for table in tables]
    parts = {"train": [train], "test": test, "serve": [train, *test, served]}
    lists = {}
    for table, people in parts.items():
        found = listing(*people, order=order)
        # Where ids are not compared by digests, only those to serve are found by them later.
        is_needed = order is None or table == "serve"
        lists[table] = found if is_needed else replace(found, digests=NOBODY.digests)
    return lists
