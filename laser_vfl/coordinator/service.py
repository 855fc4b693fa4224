"""The coordinator's RPCs: thin translations between messages and the federation's rules."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import numpy as np

from laser_vfl.coordinator import directives
from laser_vfl.coordinator.alignment import Alignment, group_lists
from laser_vfl.coordinator.directives import Commitment
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.memory import Memory
from laser_vfl.coordinator.messages import directive_message, status_message
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.reports import MAX_TEXT, read_address, read_report, short_text
from laser_vfl.core.alignment import DIGEST_BYTES, check_distinct
from laser_vfl.core.errors import (
    AddressError,
    AlignmentOver,
    ContractError,
    DataError,
    MismatchError,
    NotRegistered,
    TrainingStopped,
    printable,
    quoted,
)
from laser_vfl.core.purpose import TABLES_UNFIT
from laser_vfl.core.release import __version__
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorServicer
from laser_vfl.wire.access import caller_text, check_on_roster, identify
from laser_vfl.wire.alignments import TABLE_NAMES, TABLES
from laser_vfl.wire.patience import NEXT_S, SLOWEST_BYTES_PER_S, in_time
from laser_vfl.wire.protocol import CHUNK_BYTES, PROTOCOL_VERSION

log = logging.getLogger(__name__)

TICK_S = 0.25

GROUPS_PER_MESSAGE = 10_000

Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorService(CoordinatorServicer):
    """Serves one federation. Everything runs on one event loop, so the rules need no locks."""

    def __init__(
        self, name: str, training: TrainingSettings, federation: Federation, memory: Memory
    ) -> None:
        self._name = name
        self._training = training
        self._federation = federation
        self._memory = memory
        self._changed = asyncio.Event()
        self._grouping: asyncio.Future[None] | None = None

    async def keep_time(self) -> None:
        """Let time pass for the rules, for as long as the daemon lives."""
        while True:
            self._federation.tick(time.monotonic())
            self._announce()
            await self._group()
            await asyncio.sleep(TICK_S)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        """Check that a client fits, and tell it what is the same for everybody."""
        self._check_fits(request)
        client = identify(request.client).name
        self._federation.registry.check_listed(client)
        registration = self._federation.register(
            client,
            nonce=short_text(request.nonce, "a nonce"),
            address=read_address(request.address),
            has_head=request.has_head,
            wants_run=request.wants_run,
            now=time.monotonic(),
            identity=caller_text(),
        )
        self._announce()
        if not self._memory.is_up_to_date:
            raise AddressError("the coordinator cannot write its state", hint="see its log")
        return pb.RegisterResponse(
            incarnation=registration.incarnation,
            roster=self._federation.roster,
            training=pb.TrainingSettings(**self._training.model_dump()),
            alignment=self._federation.alignments.scheme,
        )

    async def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:
        """Take a client's word for its lists of points."""
        registration = self._find(request, context)
        alignment = self._federation.alignments.of(registration, request.alignment)
        with self._ending(alignment, registration):
            alignment.commit(
                registration.client,
                [
                    Commitment(registration.client, _table(c.table), c.num_points, c.sha256)
                    for c in request.commitments
                ],
            )
        self._announce()
        return pb.CommitResponse()

    async def SubmitIds(self, requests: Any, context: Any) -> pb.SubmitIdsResponse:
        """Collect the blinded ids of one table."""
        iterator: AsyncIterator[pb.SubmitIdsRequest] = aiter(requests)
        first = await in_time(anext(iterator, None))
        if first is None:
            raise ContractError("a list of ids begins with the client and the table")
        registration = self._find(first, context)
        alignments = self._federation.alignments
        alignment = alignments.of(registration, first.alignment)
        with self._ending(alignment, registration):
            table = _table(first.table)
            with alignment.submitting(registration.client, table):
                begun_at, blinded = time.monotonic(), bytearray(first.blinded)
                alignment.check_room(registration.client, table, len(blinded) // DIGEST_BYTES)
                while (request := await in_time(anext(iterator, None), NEXT_S)) is not None:
                    blinded += request.blinded
                    alignments.of(registration, first.alignment)
                    alignment.check_room(registration.client, table, len(blinded) // DIGEST_BYTES)
                    most_s = NEXT_S + len(blinded) / SLOWEST_BYTES_PER_S
                    if time.monotonic() - begun_at > most_s:
                        raise ContractError("a list comes too slowly")
                if len(blinded) % DIGEST_BYTES:
                    raise ContractError(f"blinded ids have {DIGEST_BYTES} bytes each")
                rows = np.frombuffer(blinded, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
                await asyncio.to_thread(check_distinct, rows)
            self._find(first, context)
            alignments.of(registration, first.alignment).submit(registration.client, table, rows)
        self._announce()
        self._grouping = asyncio.ensure_future(self._group())
        return pb.SubmitIdsResponse(num_ids=len(rows))

    async def FetchAlignment(self, request: pb.FetchAlignmentRequest, context: Any) -> None:  # type: ignore[override]
        """Wait until everybody has submitted, then tell a client about its own rows."""
        while True:
            registration = self._find(request, context)
            if isinstance(registration.verdict, directives.Stopped):
                raise TrainingStopped(registration.verdict.reason, hint="see the coordinator's log")
            tables = self._federation.outcome(registration, request.alignment)
            if tables is not None:
                break
            await self._changed.wait()
        for table, alignment in tables.items():
            code = TABLES[table]
            for start in range(0, len(alignment.groups), GROUPS_PER_MESSAGE):
                piece = alignment.groups[start : start + GROUPS_PER_MESSAGE]
                groups = [pb.Group(observed=g.observed, size=g.size) for g in piece]
                await context.write(pb.FetchAlignmentResponse(table=code, groups=groups))
            for group, rows in alignment.rows.items():
                data = rows.astype("<i8").tobytes()
                for start in range(0, len(data), CHUNK_BYTES):
                    part = pb.GroupRows(group=group, rows=data[start : start + CHUNK_BYTES])
                    await context.write(pb.FetchAlignmentResponse(table=code, rows=part))
        self._federation.alignments.fetched(registration, request.alignment)

    async def RefuseAlignment(
        self, request: pb.RefuseAlignmentRequest, context: Any
    ) -> pb.RefuseAlignmentResponse:
        """End an alignment that a client cannot go on with."""
        self._federation.refuse(
            self._find(request, context),
            request.alignment,
            short_text(request.peer, "the name of a client"),
            short_text(request.reason, "a reason"),
            time.monotonic(),
            unreachable=request.unreachable,
        )
        self._announce()
        return pb.RefuseAlignmentResponse()

    async def DryRun(self, request: pb.DryRunRequest, context: Any) -> pb.DryRunResponse:
        """Align everybody who is there, and train nothing."""
        registration = self._find(request, context)
        now = time.monotonic()
        self._federation.dry_run(registration, now)
        self._federation.tick(now)
        self._announce()
        number = self._federation.alignments.number_of_dry_run(registration)
        return pb.DryRunResponse(number=number)

    async def Session(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        """Take heartbeats and push a directive whenever it, or somebody's address, changes."""
        iterator: AsyncIterator[pb.Heartbeat] = aiter(requests)
        first = await in_time(anext(iterator, None))
        if first is None:
            return
        registration = self._find(first, context)
        session = self._federation.connected(registration, time.monotonic())
        pusher = asyncio.create_task(self._push(registration, context))
        try:
            self._hear(registration, first)
            async for heartbeat in iterator:
                self._hear(registration, heartbeat)
        finally:
            self._federation.disconnected(registration, session, time.monotonic())
            self._announce()
            pusher.cancel()
            await asyncio.gather(pusher, return_exceptions=True)

    async def Retrain(self, request: pb.RetrainRequest, context: Any) -> pb.RetrainResponse:
        """Ask everybody for a new run."""
        seed = self._federation.retrain(request.seed if request.HasField("seed") else None)
        self._federation.tick(time.monotonic())
        self._announce()
        return pb.RetrainResponse(seed=seed, waiting_for=self._federation.absent)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.FederationStatus:
        """Tell how the federation stands."""
        check_on_roster(self._federation.roster)
        return status_message(self._name, self._federation.status(time.monotonic()))

    async def Greet(self, request: pb.GreetRequest, context: Any) -> pb.GreetResponse:
        """Tell who this is, and a client whether it could register and where the others are."""
        response = pb.GreetResponse(
            federation=self._name,
            release=__version__,
            protocol_version=PROTOCOL_VERSION,
            time=time.time(),
        )
        if not request.client:
            return response
        client = identify(request.client).name
        response.on_roster = client in self._federation.roster
        try:
            self._check_fits(request)
            self._federation.registry.check_listed(client)
        except MismatchError as error:
            response.problem = str(error)
            return response
        for peer, address in self._federation.addresses():
            response.addresses.add(client=peer, address=address)
        return response

    def _check_fits(self, request: pb.RegisterRequest | pb.GreetRequest) -> None:
        """Refuse who speaks another contract, or means another federation."""
        if request.protocol_version != PROTOCOL_VERSION:
            raise MismatchError(
                f"this coordinator speaks protocol version {PROTOCOL_VERSION}, the client "
                f"({quoted(request.release)}) speaks {request.protocol_version}",
                hint="run the same release on both sides",
            )
        if request.federation != self._name:
            raise MismatchError(
                f"this federation is {quoted(self._name)}, not {quoted(request.federation)}",
                hint="correct `federation` or `coordinator`",
            )

    def _find(self, message: Any, context: Any) -> Registration:
        """Return the registration that a message speaks for; nobody speaks for another."""
        client = identify(message.client).name
        return self._federation.find(client, message.incarnation)

    @contextmanager
    def _ending(self, alignment: Alignment, registration: Registration) -> Iterator[None]:
        """End an alignment that a member spoils; otherwise the others would wait for its part."""
        try:
            yield
        except (ContractError, DataError) as error:
            reason = TABLES_UNFIT if isinstance(error, DataError) else error.message
            with suppress(AlignmentOver, NotRegistered):
                self._federation.find(registration.client, registration.incarnation)
                self._federation.refuse(
                    registration, alignment.id, registration.client, reason, time.monotonic()
                )
                self._announce()
            raise

    async def _group(self) -> None:
        """Group the lists of an alignment that has them all, away from the event loop."""
        taken = self._federation.alignments.take_lists()
        if taken is None:
            return
        alignment, lists = taken
        try:
            results = await asyncio.to_thread(group_lists, self._federation.roster, lists)
        except Exception:
            log.exception("an alignment could not be grouped; this is a bug")
            self._federation.alignments.abort(alignment, "the coordinator failed", time.monotonic())
            return
        self._federation.grouped(alignment, results, time.monotonic())
        self._announce()

    def _hear(self, registration: Registration, heartbeat: pb.Heartbeat) -> None:
        self._federation.find(registration.client, registration.incarnation)
        if heartbeat.state == pb.CLIENT_STATE_GONE:
            self._federation.gone(registration, printable(heartbeat.reason[:MAX_TEXT]))
        else:
            report = read_report(heartbeat, self._federation.roster)
            self._federation.heartbeat(registration, report, time.monotonic())
        self._announce()

    async def _push(self, registration: Registration, context: Context) -> None:
        last: object = None
        while self._federation.knows(registration):
            changed = self._changed  # of this moment: it is replaced while a directive is written
            directive = self._federation.directive(registration)
            addresses = self._federation.addresses()
            if self._memory.is_up_to_date and (directive, addresses) != last:
                await context.write(directive_message(directive, addresses))
                last = (directive, addresses)
            await changed.wait()

    def _announce(self) -> None:
        """Wake everybody who waits for a change, once it is on disk."""
        self._memory.keep(self._federation)
        self._changed.set()
        self._changed = asyncio.Event()


def _table(code: int) -> str:
    if code not in TABLE_NAMES:
        raise ContractError("a list of ids is of one of the tables")
    return TABLE_NAMES[code]
