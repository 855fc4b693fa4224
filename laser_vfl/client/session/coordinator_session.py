"""A client's session with the coordinator: register, submit ids, fetch alignments, heartbeats."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import grpc.aio
import numpy as np
import numpy.typing as npt

from laser_vfl.client.session.coordinator_terms import read_roster, read_scheme, read_settings
from laser_vfl.client.session.outcome_checks import OutcomeReader, TableLimits
from laser_vfl.client.session.peer_address import DialRule
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.alignment import DIGEST_BYTES, ClientAlignment
from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.core.errors import ContractError, LaserError, TrainingStopped, printable
from laser_vfl.core.release import __version__
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.alignment_messages import TABLES, table_numbers
from laser_vfl.transport.grpc_status import (
    error_from,
    heed_cancellation,
    is_ours,
    retry_after_s,
)
from laser_vfl.transport.protocol import CHUNK_BYTES, PROTOCOL_VERSION
from laser_vfl.transport.reloading_channel import ReloadingChannel
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub

if TYPE_CHECKING:
    from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorAsyncStub

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview
Places = npt.NDArray[np.uint8]

RPC_TIMEOUT_S = 20.0

HEARTBEAT_GAP_S = 0.05
"""The least time between heartbeats: a peer that opens and cuts a stream makes each a change."""

SCREENED_EVERY_S = 5.0
"""How often the names in a directive are looked at again, in case they mean something else."""

MAX_NAMED = 1000
"""How many letters of the names that are waited for are logged."""

MAX_WAIT_S = 30.0
"""The longest that a client waits before it registers again, whatever the coordinator says."""


@dataclass(frozen=True)
class ClientInfo:
    """What a client says of itself when it registers."""

    federation: str
    client: str
    address: str
    has_head: bool


@dataclass(frozen=True)
class RegistrationReply:
    """What the coordinator answers: what is the same for everybody."""

    incarnation: int
    roster: tuple[str, ...]
    settings: TrainingSettings
    scheme: Scheme


@dataclass(frozen=True)
class ServingStatus:
    """What a client serves: the run of its model, how it names people, and who has no name yet."""

    model_run: str = ""
    naming: str = ""
    num_unaligned: int = 0
    next_run: str = ""
    """The run of a model that is trained and not served yet."""
    holds: bool = False
    """Whether this client holds it back itself."""


@dataclass(frozen=True)
class PublicationNews:
    """Which runs are live, the newest last, and which is held back by whom."""

    live: tuple[str, ...] = ()
    held_run: str = ""
    held_by: tuple[str, ...] = ()


class ServingPart(Protocol):
    """What a session exchanges with the part of the client that serves."""

    def status(self) -> ServingStatus:
        """Return what the coordinator is told of what is served."""

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        """Learn where the other clients can be reached now."""

    def hear_publication(self, news: PublicationNews) -> None:
        """Hear from the coordinator which runs are live."""


class _NothingServed:
    def status(self) -> ServingStatus:
        return ServingStatus()

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        pass

    def hear_publication(self, news: PublicationNews) -> None:
        pass


class RunStopped(TrainingStopped):
    """The coordinator has ended a run, or this client's part in it."""

    def __init__(self, message: str, *, run: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.run = run


class Session:
    """One process's session with the coordinator. Heartbeats run by themselves once it is open."""

    def __init__(
        self,
        channel: ReloadingChannel,
        me: ClientInfo,
        progress: Progress,
        serving: ServingPart | None = None,
        dial_rule: DialRule | None = None,
        times: WaitingTimes = DEFAULT_TIMES,
    ) -> None:
        self._serving = serving or _NothingServed()
        self._dial_rule = dial_rule
        self._times = times
        self._channel = channel
        self._me = me
        self._nonce = secrets.token_hex(8)
        self.incarnation = 0
        self.num_heard = 0
        """How often the coordinator has said something."""
        self._progress = progress
        self._status = pb.Heartbeat(state=pb.CLIENT_STATE_JOINING)
        self._status_changed = asyncio.Event()
        self._directive: pb.Directive | None = None
        self._unscreened: pb.Directive | None = None
        """The same with all addresses, some of which must not be dialled, or not yet."""
        self._directive_changed = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None
        self._screening: asyncio.Task[None] | None = None
        self._lost: LaserError | None = None
        self._waiting_for: list[str] = []
        self._in_touch = False
        self._touched_at = time.monotonic()

    @property
    def retry_s(self) -> float:
        """How long to wait before the coordinator is called again."""
        return self._times.retry_s

    @property
    def _stub(self) -> "CoordinatorAsyncStub":
        return CoordinatorStub(self._channel.channel)

    async def register(self, *, wants_run: bool) -> RegistrationReply:
        """Register this client; raises why the coordinator refuses it."""
        who = self._me
        request = pb.RegisterRequest(
            federation=who.federation,
            protocol_version=PROTOCOL_VERSION,
            client=who.client,
            nonce=self._nonce,
            address=who.address,
            has_head=who.has_head,
            release=__version__,
            wants_run=wants_run,
        )
        with _as_ours("registering with the coordinator"):
            response = await self._stub.Register(request, timeout=RPC_TIMEOUT_S)
        roster = read_roster(response.roster, who.client)
        reply = RegistrationReply(
            incarnation=response.incarnation,
            roster=roster,
            settings=read_settings(response.training, len(roster)),
            scheme=read_scheme(response.alignment),
        )
        self.incarnation = reply.incarnation
        return reply

    def open(self, run: str = "") -> None:
        """Start the heartbeats; `run` is what this client could come back to."""
        self._status = pb.Heartbeat(
            client=self._me.client,
            incarnation=self.incarnation,
            state=pb.CLIENT_STATE_JOINING,
            run=run,
        )
        self._directive = self._unscreened = None
        self._lost = None
        self._heart = asyncio.create_task(self._beat())
        if self._dial_rule is not None:
            self._screening = asyncio.create_task(self._screen_again(self._dial_rule))

    def renew(self) -> None:
        """Register as another process from the next time on."""
        self._nonce = secrets.token_hex(8)

    async def close(self, reason: str = "", problem: str = "") -> None:
        """End the session; with a reason, tell the coordinator that this client leaves.

        `problem` says what this client could not do, if it leaves because of that.
        """
        if self._screening is not None:
            self._screening.cancel()
        if self._heart is None or self._heart.done():
            return
        if reason:
            self.report(state=pb.CLIENT_STATE_GONE, reason=reason, problem=problem)
            await asyncio.wait([self._heart], timeout=1.0)
        self._heart.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._heart

    async def commit(
        self, alignment: str, num_points: int, sha256: bytes, num_known: int = 0
    ) -> None:
        """Commit to the list of points that this client brings.

        `num_known` is how many people it submits besides who were aligned before.
        """
        request = pb.CommitRequest(
            client=self._me.client,
            incarnation=self.incarnation,
            alignment=alignment,
            num_points=num_points,
            sha256=sha256,
            num_known=num_known,
        )
        with _as_ours("committing to blinded ids"):
            await self._stub.Commit(request, timeout=RPC_TIMEOUT_S)

    async def submit_ids(
        self, alignment: str, table: str, blinded: Buffer, places: Places | None = None
    ) -> None:
        """Send a list of blinded ids, in this client's order.

        `places` says of points which table each person is in, by its place in TABLES.
        """
        data = memoryview(blinded)
        numbers = b"" if places is None else table_numbers(places)
        at_once = CHUNK_BYTES // (DIGEST_BYTES + 1)
        size = at_once * DIGEST_BYTES

        async def pieces() -> AsyncIterator[pb.SubmitIdsRequest]:
            yield pb.SubmitIdsRequest(
                client=self._me.client,
                incarnation=self.incarnation,
                alignment=alignment,
                table=TABLES[table],
            )
            for start in range(0, len(data), size):
                first = start // DIGEST_BYTES
                yield pb.SubmitIdsRequest(
                    blinded=bytes(data[start : start + size]),
                    tables=numbers[first : first + at_once],
                )

        with _as_ours("submitting blinded ids"):
            response = await self._stub.SubmitIds(pieces())
        if response.num_ids != len(data) // DIGEST_BYTES:
            raise ContractError(
                f"the coordinator counted {response.num_ids} ids, this client sent "
                f"{len(data) // DIGEST_BYTES}"
            )

    async def fetch_alignment(
        self, alignment: str, tables: Mapping[str, TableLimits]
    ) -> dict[str, ClientAlignment]:
        """Wait for the outcome of an alignment; return this client's part of each table.

        `tables` has the limits of each table. Anything above them ends the call at once.
        """
        request = pb.FetchAlignmentRequest(
            client=self._me.client, incarnation=self.incarnation, alignment=alignment
        )
        outcome = OutcomeReader(tables)
        call = self._stub.FetchAlignment(request)
        try:
            with _as_ours("waiting for the alignment"):
                async for piece in call:
                    outcome.add(piece)
        finally:
            call.cancel()  # no effect once it has ended
        return outcome.whole()

    async def refuse(self, alignment: str, peer: str, reason: str, *, unreachable: bool) -> None:
        """Tell the coordinator that this client cannot go on, and who gave cause."""
        request = pb.RefuseAlignmentRequest(
            client=self._me.client,
            incarnation=self.incarnation,
            alignment=alignment,
            peer=peer,
            reason=reason,
            unreachable=unreachable,
        )
        with _as_ours("refusing an alignment"):
            await self._stub.RefuseAlignment(request, timeout=RPC_TIMEOUT_S)

    async def withdraw_dry_run(self) -> None:
        """Say that nobody here waits for a dry run any more; the coordinator may not hear it."""
        request = pb.DryRunRequest(
            client=self._me.client, incarnation=self.incarnation, withdrawn=True
        )
        with contextlib.suppress(LaserError), _as_ours("withdrawing a dry run"):
            await self._stub.DryRun(request, timeout=RPC_TIMEOUT_S)

    async def dry_run(self) -> int:
        """Ask for an alignment of everybody who is there; return the number of the first such."""
        request = pb.DryRunRequest(client=self._me.client, incarnation=self.incarnation)
        with _as_ours("asking for a dry run"):
            response = await self._stub.DryRun(request, timeout=RPC_TIMEOUT_S)
        return response.number

    def report(
        self,
        *,
        state: "pb.ClientState.ValueType | None" = None,
        run: str | None = None,
        reason: str = "",
        prepared: bool | None = None,
        problem: str | None = None,
    ) -> None:
        """Change what the heartbeats say; a change of state is sent at once."""
        if run is not None:
            self._status.run = run
        self._status.reason = reason
        if prepared is not None:
            self._status.prepared = prepared
        if problem is not None:
            self._status.problem = problem
        if state is not None:
            self._status.state = state
        self._status_changed.set()

    @property
    def latest(self) -> pb.Directive | None:
        """What the coordinator said last in this session."""
        return self._directive

    async def news(self, num_heard: int) -> None:
        """Wait until the coordinator has said more than this; raises if it does not know us."""
        while self.num_heard == num_heard and self._lost is None:
            self._directive_changed.clear()
            await self._directive_changed.wait()
        if self._lost is not None:
            raise self._lost

    async def directive(self, wanted: Callable[[pb.Directive], bool]) -> pb.Directive:
        """Wait until the coordinator says something of the wanted kind."""
        while self._directive is None or not wanted(self._directive):
            if self._lost is not None:
                raise self._lost
            self._directive_changed.clear()
            await self._directive_changed.wait()
        return self._directive

    @property
    def in_touch(self) -> bool:
        """Whether the coordinator was reached when it was last tried."""
        return self._in_touch

    @property
    def away_s(self) -> float:
        """For how long the coordinator has been out of reach."""
        return 0.0 if self._in_touch else time.monotonic() - self._touched_at

    async def _beat(self) -> None:
        """Keep a stream open to the coordinator, and open it again when it breaks."""
        while True:
            try:
                call = self._stub.Session(self._heartbeats())
                with self._channel.while_fresh(call):
                    async for directive in call:
                        heed_cancellation()
                        self._unscreened = directive
                        if self._dial_rule is not None:
                            directive = await self._dial_rule.screen_soon(
                                directive, self._me.client
                            )
                        self._hear(directive)
                if self._channel.is_stale:
                    continue
                if self._status.state == pb.CLIENT_STATE_GONE:
                    return
            except grpc.aio.AioRpcError as error:
                heed_cancellation()
                if (wait_s := retry_after_s(error)) is not None:  # it came back too often
                    self._set_touch(False)
                    await asyncio.sleep(min(wait_s, MAX_WAIT_S))
                    continue
                if is_ours(error):
                    self._lost = error_from(error, doing="keeping in touch with the coordinator")
                    self._set_touch(False)
                    self._directive_changed.set()
                    log.warning("lost the coordinator: %s", self._lost)
                    return
                if self._in_touch:
                    log.warning("the coordinator is out of reach; trying again")
                self._set_touch(False)
            await asyncio.sleep(self._times.retry_s)

    async def _screen_again(self, rule: DialRule) -> None:
        """Hear the last directive anew when other addresses of it may be dialled than before."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SCREENED_EVERY_S):
                    await rule.news.wait()
            rule.news.clear()
            if self._unscreened is not None and self._in_touch:
                screened = rule.screen(self._unscreened, self._me.client)
                if screened != self._directive:
                    self._hear(screened)

    def _set_touch(self, value: bool) -> None:
        if self._in_touch and not value:
            self._touched_at = time.monotonic()
        self._in_touch = value

    def _hear(self, directive: pb.Directive) -> None:
        self._directive = directive
        self.num_heard += 1
        self._directive_changed.set()
        self._set_touch(True)
        told = directive.publication
        held_by = tuple(map(printable, told.held_by))
        self._serving.hear_publication(PublicationNews(tuple(told.live), told.held_run, held_by))
        self._serving.learn_addresses(
            {entry.client: entry.address for entry in directive.addresses}
        )
        me = self._me.client
        awaited = (*directive.gathering.waiting_for, *directive.training.waiting_for)
        others = [name for name in awaited if name != me]
        if others and others != self._waiting_for:
            log.info("waiting for %s", printable(", ".join(others)[:MAX_NAMED]))
        self._waiting_for = others
        gathering = directive.gathering
        if gathering.wanted and not (gathering.run or gathering.waiting_for or gathering.call.id):
            log.info("a run is under way without this client; waiting for its end")

    async def _heartbeats(self) -> AsyncIterator[pb.Heartbeat]:
        while True:
            self._status_changed.clear()
            self._progress.describe(self._status)
            serving = self._serving.status()
            self._status.model_run = serving.model_run
            self._status.naming = serving.naming
            self._status.num_newcomers = serving.num_unaligned
            self._status.next_run = serving.next_run
            self._status.holds = serving.holds
            yield self._status
            if self._status.state == pb.CLIENT_STATE_GONE:
                return
            await asyncio.sleep(HEARTBEAT_GAP_S)
            # Not wait_for, which may swallow a cancellation that comes at the same time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._times.heartbeat_s):
                    await self._status_changed.wait()


def stopped_by(directive: pb.Directive) -> RunStopped:
    """Return the error of a client whose run is over before its end."""
    told = directive.stopped
    return RunStopped(printable(told.reason), run=told.run, hint="see the coordinator's log")


@contextlib.contextmanager
def _as_ours(doing: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        heed_cancellation()
        raise error_from(error, doing=doing) from None
    heed_cancellation()
