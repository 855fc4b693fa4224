"""From nothing to a view: register, wait until a run is wanted, align, wait until all are ready."""

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from laser_vfl.client.alignment.aligner import Aligned
from laser_vfl.client.alignment.ring_call import RingCall, read_call
from laser_vfl.client.session.coordinator_session import (
    MAX_WAIT_S,
    RegistrationReply,
    Session,
    stopped_by,
)
from laser_vfl.client.session.failure_notices import failure_notice
from laser_vfl.client.session.member_view import check_view
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.core.alignment import num_shared
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import (
    AddressError,
    AlignmentOver,
    AlignmentRefused,
    IdentityError,
    LaserError,
    LimitExceeded,
    NameTaken,
    NotRegistered,
    TrainingStopped,
)
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.grpc_status import HungUp
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

TAKEN_S = 5.0
"""How long the coordinator may take to notice that an earlier process of this client was killed."""

MAX_HUNG_UP = 5
"""A coordinator that restarts closes fewer connections in a row; closing so many is a refusal."""


@dataclass(frozen=True)
class Joined:
    """A run that this client is in, or may come back to."""

    record: RunRecord
    """With the seed and the heads that its view has."""
    is_new: bool
    """Whether this client has just been aligned for it."""
    members: tuple[str, ...] = ()
    """The members of its view; empty when it is over."""


@dataclass
class RunRequest:
    """Whether this client wants to train; it may come to want it while it waits."""

    wants_run: bool
    patience_s: float
    """How long to try to reach the coordinator."""
    since: float = 0.0
    """When it was made; patience is counted from then, or from the first try if that was later."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self) -> None:
        """Want a run from the next registration on."""
        self.wants_run = True

    def want_now(self, patience_s: float) -> None:
        """Want a run also if this client is registered already, without wanting one."""
        self.wants_run, self.patience_s, self.since = True, patience_s, time.monotonic()
        self.changed.set()

    def withdraw(self) -> None:
        """Want no run from the next registration on."""
        self.wants_run = False

    def wait_forever(self) -> None:
        """Go on trying to reach the coordinator, however long it takes."""
        self.patience_s = math.inf


class JoinHooks(Protocol):
    """What a client does at each point on its way into a run; `join` calls it."""

    async def accept(self, reply: RegistrationReply) -> None:
        """Check what the coordinator demands; may raise."""

    async def prepare(self) -> None:
        """Read the tables, once a run is wanted; return when an alignment may begin."""

    async def attend(self, call: RingCall) -> Aligned:
        """Take part in an alignment."""

    def hear_refused(self, number: int, reason: str) -> None:
        """Hear that a dry run was refused, whether or not this client was at it."""

    def hear_own_request(self, state: "pb.RequestState.ValueType") -> None:
        """Hear what has become of the run that this client asks for; may raise."""

    def run_unwanted(self) -> None:
        """Hear that no run is wanted any more, though none has started."""

    async def run_given_up(self) -> None:
        """Hear that the run that this client was aligned for comes to nothing; others failed."""

    @property
    def unfinished_run(self) -> str:
        """The run that this client could come back to, if any."""

    async def keep(self, aligned: Aligned, settings: TrainingSettings) -> RunRecord:
        """Put on disk what is needed to come back to a run."""

    async def recall(self, run: str) -> RunRecord | None:
        """Return what is needed to come back to a run, if it is there and fits the tables."""


async def join(session: Session, client: str, hooks: JoinHooks, request: RunRequest) -> Joined:
    """Join the next run. A coordinator that is not up yet, or restarts, is waited for.

    A client that does not want a run itself waits, registered, until somebody does.
    """
    while True:
        request.changed.clear()
        reply = await _register(session, request)
        await hooks.accept(reply)
        session.open(hooks.unfinished_run)
        waiting = _Waiting(session, client, reply, hooks)
        try:
            joined = await waiting.until_a_run_starts(request)
        except (AddressError, NotRegistered) as error:
            log.warning("%s; registering anew", error)
            joined = None
        if joined is not None:
            return joined
        await session.close()


class _Waiting:
    """A registered client until its run starts. It attends the alignments that it is called to."""

    def __init__(
        self, session: Session, client: str, reply: RegistrationReply, hooks: JoinHooks
    ) -> None:
        self._session = session
        self._client = client
        self._reply = reply
        self._hooks = hooks
        self._attended = ""
        self._refused = 0
        """The last dry run that it has heard was refused."""
        self._own_request = pb.REQUEST_STATE_UNSPECIFIED
        """What it has heard of the run that it asks for."""
        self._record: RunRecord | None = None
        """Of the run that this client has just been aligned for."""
        self._declined = ""
        """A run under way that this client has no record of, as it has told the coordinator."""
        self._preparing: asyncio.Task[None] | None = None
        self._is_wanted = False
        """Whether it has heard that a run is wanted."""

    async def until_a_run_starts(self, request: RunRequest) -> Joined | None:
        """Return the run; or None when this client has come to want one, and must say so first."""
        change = asyncio.create_task(request.changed.wait())
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
        """Wait for a directive that asks for something; None if the request has changed."""
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
        if gathering.own_request != self._own_request:
            return True
        if gathering.run and self._record is None:
            return True
        if self._record is not None:
            return self._is_lost(gathering)
        if gathering.wanted != self._is_wanted:
            return True
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
        if self._is_lost(gathering):  # because a member was lost before the start
            self._record = None
            await self._hooks.run_given_up()
            self._session.report(state=pb.CLIENT_STATE_JOINING, run="")
        if self._is_wanted and not gathering.wanted:
            self._hooks.run_unwanted()
        self._is_wanted = gathering.wanted
        if gathering.own_request != self._own_request:
            self._own_request = gathering.own_request
            self._hooks.hear_own_request(self._own_request)
        if gathering.wanted and self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())
        if gathering.refused.number > self._refused:
            self._refused = gathering.refused.number
            self._hooks.hear_refused(self._refused, gathering.refused.reason)
        if gathering.call.id and gathering.call.id != self._attended:
            self._attended = gathering.call.id
            await self._attend(read_call(gathering.call, self._reply.roster, self._client))
        return None

    async def _prepare(self) -> None:
        await self._hooks.prepare()
        self._session.report(prepared=True)

    async def _attend(self, call: RingCall) -> None:
        """Take part in an alignment; if that fails here, all are told why."""
        try:
            aligned = await self._hooks.attend(call)
        except AlignmentRefused as refused:
            log.warning("alignment %s has failed: %s", call.id, refused)
        except AlignmentOver as over:
            log.warning("alignment %s has ended: %s", call.id, over)
        except (AddressError, NotRegistered, TrainingStopped):
            raise
        except LaserError as error:
            log.error("cannot take part in alignment %s: %s", call.id, error)
            with suppress(AlignmentOver):
                await self._session.refuse(
                    call.id, self._client, failure_notice(error), unreachable=False
                )
        else:
            if call.purpose is AlignmentPurpose.RUN:
                self._record = await self._hooks.keep(aligned, self._reply.settings)
                self._warn_if_alone(self._record)
                self._session.report(state=pb.CLIENT_STATE_READY, run=call.id)

    async def _into_the_run(self, directive: pb.Directive) -> Joined | None:
        """Return the run that this client was aligned for, just now or before it was restarted."""
        view = directive.training.view
        run = view.run or directive.finished.run
        record, is_new = self._record, True
        if record is None or record.run != run:
            record, is_new = await self._hooks.recall(run), False
        if record is None:
            self._declined = run
            self._session.report(run="")
            return None
        if view.run:
            check_view(view, record.roster)
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


async def _register(session: Session, request: RunRequest) -> RegistrationReply:
    started = time.monotonic()
    num_hung_up = 0
    told = False
    while True:
        try:
            return await session.register(wants_run=request.wants_run)
        except LimitExceeded as error:
            await asyncio.sleep(min(error.retry_after_s, MAX_WAIT_S))
        except NameTaken:
            if time.monotonic() > started + TAKEN_S:
                raise
        except AddressError as error:
            num_hung_up = num_hung_up + 1 if isinstance(error, HungUp) else 0
            if num_hung_up >= MAX_HUNG_UP:
                raise IdentityError(
                    "the coordinator hangs up on this client",
                    hint="are both sides on TLS or both on --insecure, and does the coordinator's "
                    "ca know this client's cert?",
                ) from None
            if time.monotonic() > max(started, request.since) + request.patience_s:
                raise
            if not told:
                how_long = (
                    "on" if math.isinf(request.patience_s) else f"for {request.patience_s:g} s"
                )
                log.warning("%s; trying %s", error, how_long)
                told = True
        await asyncio.sleep(session.retry_s)
