"""From nothing to a view: register, wait until a run is wanted, align, wait until all are ready."""

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from laser_vfl.client.aligning import MAX_REASON, Aligned
from laser_vfl.client.ring_call import RingCall, read_call
from laser_vfl.client.run_record import RunRecord
from laser_vfl.client.session import RETRY_S, Session, Welcome, stopped_by
from laser_vfl.core.alignment import num_shared
from laser_vfl.core.errors import (
    AddressError,
    AlignmentOver,
    AlignmentRefused,
    DataError,
    IdentityError,
    LaserError,
    NameTaken,
    NotRegistered,
    TrainingStopped,
    printable,
)
from laser_vfl.core.purpose import TABLES_UNFIT, Purpose
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

TAKEN_S = 5.0
"""How long to wait for a process of our name that was killed to be noticed."""

MAX_HUNG_UP = 5
"""So often a daemon may close a connection while it restarts; one that always does refuses us."""


@dataclass(frozen=True)
class Joined:
    """A run that this client is in, or may come back to."""

    record: RunRecord
    """With the seed and the heads that its view has."""
    is_new: bool
    """Whether this client has just been aligned for it."""
    members: tuple[str, ...] = ()
    """Who is in its view; nobody when it is over."""


@dataclass
class Wish:
    """Whether this client wants to train; it may come to want it while it waits."""

    wants_run: bool
    patience_s: float
    """How long to try to reach the coordinator."""
    since: float = 0.0
    """When it was made; patience is counted from then, or from the first try if that was later."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Applicant(Protocol):
    """What a client decides on its way into a run."""

    async def accept(self, welcome: Welcome) -> None:
        """See what the coordinator demands before anything is promised; may refuse."""

    async def prepare(self) -> None:
        """Read the tables, once a run is wanted; return when an alignment may begin."""

    async def attend(self, call: RingCall) -> Aligned:
        """Take part in an alignment."""

    def hear_refused(self, number: int, reason: str) -> None:
        """Hear that a dry run was refused, whether or not this client was at it."""

    @property
    def unfinished_run(self) -> str:
        """The run that this client could come back to, if any."""

    async def keep(self, aligned: Aligned, settings: TrainingSettings) -> RunRecord:
        """Put on disk what is needed to come back to a run."""

    async def recall(self, run: str) -> RunRecord | None:
        """Return what is needed to come back to a run, if it is there and fits the tables."""


async def join(session: Session, client: str, applicant: Applicant, wish: Wish) -> Joined:
    """Join the next run. A coordinator that is not up yet, or restarts, is waited for.

    A client that does not want a run itself waits, registered, until somebody does.
    """
    while True:
        wish.changed.clear()
        welcome = await _register(session, wish)
        await applicant.accept(welcome)
        session.open(applicant.unfinished_run)
        waiting = _Waiting(session, client, welcome, applicant)
        try:
            joined = await waiting.until_a_run_starts(wish)
        except (AddressError, NotRegistered) as error:
            log.warning("%s; registering anew", error)
            joined = None
        if joined is not None:
            return joined
        await session.close()


class _Waiting:
    """A registered client until its run starts. It attends the alignments that it is called to."""

    def __init__(
        self, session: Session, client: str, welcome: Welcome, applicant: Applicant
    ) -> None:
        self._session = session
        self._client = client
        self._welcome = welcome
        self._applicant = applicant
        self._attended = ""
        self._refused = 0
        """The last dry run that it has heard was refused."""
        self._record: RunRecord | None = None
        """Of the run that this client has just been aligned for."""
        self._declined = ""
        """A run under way that this client has nothing of; the coordinator will hear so."""
        self._preparing: asyncio.Task[None] | None = None

    async def until_a_run_starts(self, wish: Wish) -> Joined | None:
        """Return the run; or None when this client has come to want one, and must say so first."""
        change = asyncio.create_task(wish.changed.wait())
        try:
            while True:
                directive = await self._news(change)
                if directive is None:
                    return None
                if (joined := await self._follow(directive)) is not None:
                    return joined
        finally:
            await _cancel(change, self._preparing)

    async def _news(self, change: asyncio.Task[bool]) -> pb.Directive | None:
        """Wait for a directive that asks for something; None if the wish has changed meanwhile."""
        news = asyncio.create_task(self._session.directive(self._is_news))
        ends: list[asyncio.Task[Any]] = [news]
        if self._preparing is None:
            ends.append(change)
        elif not self._preparing.done():
            ends.append(self._preparing)
        try:
            while not news.done():
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if self._preparing is not None and self._preparing.done():
                    self._preparing.result()
                    ends = [news]
                elif change.done() and not news.done():
                    return None
            return news.result()
        finally:
            await _cancel(news)

    def _is_news(self, directive: pb.Directive) -> bool:
        gathering = directive.gathering
        if not directive.HasField("gathering"):
            run = directive.training.view.run or directive.finished.run
            return directive.HasField("stopped") or run != self._declined
        if gathering.call.id and gathering.call.id != self._attended:
            return True
        if gathering.refused.number > self._refused:
            return True
        if gathering.run and self._record is None:
            return True
        if self._record is not None:
            return self._is_lost(gathering)
        return gathering.wanted and self._preparing is None

    def _is_lost(self, gathering: pb.Gathering) -> bool:
        """Whether the run that this client was aligned for will not start."""
        run = self._record.run if self._record is not None else ""
        return run not in ("", gathering.run, gathering.call.id)

    async def _follow(self, directive: pb.Directive) -> Joined | None:
        """Do what a directive asks for; return the run if it starts."""
        gathering = directive.gathering
        if directive.HasField("stopped"):
            raise stopped_by(directive)
        if directive.HasField("training") or directive.HasField("finished"):
            return await self._into_the_run(directive)
        if gathering.run and self._record is None:
            raise NotRegistered("the others have aligned without this client")
        if self._is_lost(gathering):  # with somebody, before the start
            self._record = None
            self._session.report(state=pb.CLIENT_STATE_JOINING, run="")
        if gathering.wanted and self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())
        if gathering.refused.number > self._refused:
            self._refused = gathering.refused.number
            self._applicant.hear_refused(self._refused, gathering.refused.reason)
        if gathering.call.id and gathering.call.id != self._attended:
            self._attended = gathering.call.id
            await self._attend(read_call(gathering.call, self._welcome.roster, self._client))
        return None

    async def _prepare(self) -> None:
        await self._applicant.prepare()
        self._session.report(prepared=True)

    async def _attend(self, call: RingCall) -> None:
        """Take part in an alignment; if that fails here, all are told why."""
        try:
            aligned = await self._applicant.attend(call)
        except AlignmentRefused as refused:
            log.warning("alignment %s has failed: %s", call.id, refused)
        except AlignmentOver as over:
            log.warning("alignment %s has ended: %s", call.id, over)
        except (AddressError, NotRegistered, TrainingStopped):
            raise
        except LaserError as error:
            log.error("cannot take part in alignment %s: %s", call.id, error)
            with suppress(AlignmentOver):
                reason = printable(error.message[:MAX_REASON])
                if isinstance(error, DataError):  # which speaks of our files
                    reason = TABLES_UNFIT
                await self._session.refuse(call.id, self._client, reason, unreachable=False)
        else:
            if call.purpose is Purpose.RUN:
                self._record = await self._applicant.keep(aligned, self._welcome.settings)
                self._warn_if_alone(self._record)
                self._session.report(state=pb.CLIENT_STATE_READY, run=call.id)

    async def _into_the_run(self, directive: pb.Directive) -> Joined | None:
        """Return the run that this client was aligned for, just now or before it was restarted."""
        view = directive.training.view
        run = view.run or directive.finished.run
        record, is_new = self._record, True
        if record is None or record.run != run:
            record, is_new = await self._applicant.recall(run), False
        if record is None:
            self._declined = run
            self._session.report(run="")
            return None
        if view.run:
            settings = record.settings.model_copy(update={"seed": view.seed})
            record = replace(record, settings=settings, heads=tuple(view.heads))
        return Joined(record, is_new, tuple(member.client for member in view.members))

    def _warn_if_alone(self, record: RunRecord) -> None:
        if len(record.roster) > 1 and not num_shared(record.tables["train"]):
            log.warning(
                "no training row of %s is held by anybody else; does data.id name the same thing "
                "at all clients%s?",
                self._client,
                ", and is id_secret_file the same" if record.scheme == "hmac" else "",
            )


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    for task in tasks:
        if task is not None:
            task.cancel()
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


async def _register(session: Session, wish: Wish) -> Welcome:
    started = time.monotonic()
    num_hung_up = 0
    told = False
    while True:
        try:
            return await session.register(wants_run=wish.wants_run)
        except NameTaken:
            if time.monotonic() > started + TAKEN_S:
                raise
        except AddressError as error:
            num_hung_up = num_hung_up + 1 if "Socket closed" in error.message else 0
            if num_hung_up >= MAX_HUNG_UP:
                raise IdentityError(
                    "the coordinator hangs up on this client",
                    hint="are both sides on TLS or both on --insecure, and does the coordinator's "
                    "ca know this client's cert?",
                ) from None
            if time.monotonic() > max(started, wish.since) + wish.patience_s:
                raise
            if not told:
                how_long = "on" if math.isinf(wish.patience_s) else f"for {wish.patience_s:g} s"
                log.warning("%s; trying %s", error, how_long)
                told = True
        await asyncio.sleep(RETRY_S)
