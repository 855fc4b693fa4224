"""A client's conversation with the coordinator: introduce, submit, fetch, stay in touch."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from laser_vfl.client.meters import Meters
from laser_vfl.client.outcome import Most, Pieces
from laser_vfl.client.progress import Progress
from laser_vfl.core.alignment import DIGEST_BYTES, ClientAlignment
from laser_vfl.core.errors import ContractError, LaserError, TrainingStopped, printable
from laser_vfl.core.purpose import Scheme
from laser_vfl.core.release import __version__
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.wire.alignments import TABLES
from laser_vfl.wire.lines import Line
from laser_vfl.wire.protocol import CHUNK_BYTES, HEARTBEAT_INTERVAL, PROTOCOL_VERSION
from laser_vfl.wire.status import error_from, heed_cancellation, is_ours

if TYPE_CHECKING:
    from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorAsyncStub

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

RETRY_S = 0.5
RPC_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Introduction:
    """What a client says of itself when it registers."""

    federation: str
    client: str
    address: str
    has_head: bool


@dataclass(frozen=True)
class Welcome:
    """What the coordinator answers: what is the same for everybody."""

    incarnation: int
    roster: tuple[str, ...]
    settings: TrainingSettings
    scheme: Scheme


@dataclass(frozen=True)
class Standing:
    """What a client serves: the run of its model, how it names people, and who has no name yet."""

    model_run: str = ""
    naming: str = ""
    num_newcomers: int = 0


class RunStopped(TrainingStopped):
    """The coordinator has ended a run, or this client's part in it."""

    def __init__(self, message: str, *, run: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.run = run


class Session:
    """One process's standing with the coordinator. Heartbeats run by themselves once it is open."""

    def __init__(
        self,
        line: Line,
        introduction: Introduction,
        meet: Callable[[Mapping[str, str]], None] = lambda addresses: None,
        standing: Callable[[], Standing] = lambda: Standing(),
        meters: Meters | None = None,
    ) -> None:
        self._line = line
        self._introduction = introduction
        self._nonce = secrets.token_hex(8)
        self.incarnation = 0
        self.progress = Progress(meters)
        self.num_heard = 0
        """How often the coordinator has said something."""
        self._meet = meet
        self._standing = standing
        self._status = pb.Heartbeat(state=pb.CLIENT_STATE_JOINING)
        self._status_changed = asyncio.Event()
        self._directive: pb.Directive | None = None
        self._directive_changed = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None
        self._lost: LaserError | None = None
        self._waiting_for: list[str] = []
        self._in_touch = False
        self._touched_at = time.monotonic()

    @property
    def _stub(self) -> "CoordinatorAsyncStub":
        return CoordinatorStub(self._line.channel)

    async def register(self, *, wants_run: bool) -> Welcome:
        """Introduce this client. Raises what the coordinator has against it."""
        who = self._introduction
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
        settings = {
            field.name: getattr(response.training, field.name)
            for field in response.training.DESCRIPTOR.fields
        }
        self.incarnation = response.incarnation
        return Welcome(
            incarnation=response.incarnation,
            roster=tuple(response.roster),
            settings=TrainingSettings.model_validate(settings),
            scheme="hmac" if response.alignment == "hmac" else "ecdh",
        )

    def open(self, run: str = "") -> None:
        """Start the heartbeats; `run` is what this client could come back to."""
        self._status = pb.Heartbeat(
            client=self._introduction.client,
            incarnation=self.incarnation,
            state=pb.CLIENT_STATE_JOINING,
            run=run,
        )
        self._directive = None
        self._lost = None
        self._heart = asyncio.create_task(self._beat())

    def renew(self) -> None:
        """Be another process to the coordinator from the next registration on."""
        self._nonce = secrets.token_hex(8)

    async def close(self, reason: str = "") -> None:
        """End the session; with a reason, tell the coordinator that this client leaves."""
        if self._heart is None or self._heart.done():
            return
        if reason:
            self.report(state=pb.CLIENT_STATE_GONE, reason=reason)
            await asyncio.wait([self._heart], timeout=1.0)
        self._heart.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._heart

    async def commit(self, alignment: str, commitments: Iterable[pb.Commitment]) -> None:
        """Commit to the lists of points that this client brings."""
        request = pb.CommitRequest(
            client=self._introduction.client,
            incarnation=self.incarnation,
            alignment=alignment,
            commitments=commitments,
        )
        with _as_ours("committing to blinded ids"):
            await self._stub.Commit(request, timeout=RPC_TIMEOUT_S)

    async def submit_ids(self, alignment: str, table: str, blinded: Buffer) -> None:
        """Send the blinded ids of one table, in the order of this client's list."""
        data = memoryview(blinded)
        size = CHUNK_BYTES - CHUNK_BYTES % DIGEST_BYTES

        async def pieces() -> AsyncIterator[pb.SubmitIdsRequest]:
            yield pb.SubmitIdsRequest(
                client=self._introduction.client,
                incarnation=self.incarnation,
                alignment=alignment,
                table=TABLES[table],
            )
            for start in range(0, len(data), size):
                yield pb.SubmitIdsRequest(blinded=bytes(data[start : start + size]))

        with _as_ours("submitting blinded ids"):
            response = await self._stub.SubmitIds(pieces())
        if response.num_ids != len(data) // DIGEST_BYTES:
            raise ContractError(
                f"the coordinator counted {response.num_ids} ids, this client sent "
                f"{len(data) // DIGEST_BYTES}"
            )

    async def fetch_alignment(
        self, alignment: str, tables: Mapping[str, Most]
    ) -> dict[str, ClientAlignment]:
        """Wait for the outcome of an alignment; return this client's part of each table.

        `tables` says how much of each there can be. More ends the call at once.
        """
        request = pb.FetchAlignmentRequest(
            client=self._introduction.client, incarnation=self.incarnation, alignment=alignment
        )
        pieces = Pieces(tables)
        call = self._stub.FetchAlignment(request)
        try:
            with _as_ours("waiting for the alignment"):
                async for piece in call:
                    pieces.add(piece)
        finally:
            call.cancel()  # which changes nothing once it has ended
        return pieces.whole()

    async def refuse(self, alignment: str, peer: str, reason: str, *, unreachable: bool) -> None:
        """Tell the coordinator that this client cannot go on, and who gave cause."""
        request = pb.RefuseAlignmentRequest(
            client=self._introduction.client,
            incarnation=self.incarnation,
            alignment=alignment,
            peer=peer,
            reason=reason,
            unreachable=unreachable,
        )
        with _as_ours("refusing an alignment"):
            await self._stub.RefuseAlignment(request, timeout=RPC_TIMEOUT_S)

    async def dry_run(self) -> int:
        """Ask for an alignment of everybody who is there; return the number of the first such."""
        request = pb.DryRunRequest(client=self._introduction.client, incarnation=self.incarnation)
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
    ) -> None:
        """Change what the heartbeats say; a change of state is sent at once."""
        if run is not None:
            self._status.run = run
        self._status.reason = reason
        if prepared is not None:
            self._status.prepared = prepared
        if state is not None:
            self._status.state = state
        self._status_changed.set()

    @property
    def latest(self) -> pb.Directive | None:
        """What the coordinator said last in this session."""
        return self._directive

    async def news(self, num_heard: int) -> None:
        """Wait until the coordinator has said more than this, or does not know us any more."""
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
                with self._line.while_fresh(call):
                    async for directive in call:
                        heed_cancellation()
                        self._hear(directive)
                if self._line.is_stale:
                    continue
                if self._status.state == pb.CLIENT_STATE_GONE:
                    return
            except grpc.aio.AioRpcError as error:
                heed_cancellation()
                if is_ours(error):
                    self._lost = error_from(error, doing="keeping in touch with the coordinator")
                    self._set_touch(False)
                    self._directive_changed.set()
                    log.warning("lost the coordinator: %s", self._lost)
                    return
                if self._in_touch:
                    log.warning("the coordinator is out of reach; trying again")
                self._set_touch(False)
            await asyncio.sleep(RETRY_S)

    def _set_touch(self, value: bool) -> None:
        if self._in_touch and not value:
            self._touched_at = time.monotonic()
        self._in_touch = value

    def _hear(self, directive: pb.Directive) -> None:
        self._directive = directive
        self.num_heard += 1
        self._directive_changed.set()
        self._set_touch(True)
        self._meet({entry.client: entry.address for entry in directive.addresses})
        me = self._introduction.client
        told = (*directive.gathering.waiting_for, *directive.training.waiting_for)
        others = [name for name in told if name != me]
        if others and others != self._waiting_for:
            log.info("waiting for %s", ", ".join(others))
        self._waiting_for = others
        gathering = directive.gathering
        if gathering.wanted and not (gathering.run or gathering.waiting_for or gathering.call.id):
            log.info("a run is under way without this client; waiting for its end")

    async def _heartbeats(self) -> AsyncIterator[pb.Heartbeat]:
        while True:
            self._status_changed.clear()
            self.progress.describe(self._status)
            standing = self._standing()
            self._status.model_run = standing.model_run
            self._status.naming = standing.naming
            self._status.num_newcomers = standing.num_newcomers
            yield self._status
            if self._status.state == pb.CLIENT_STATE_GONE:
                return
            # Not wait_for, which may swallow a cancellation that comes at the same time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_INTERVAL.total_seconds()):
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
