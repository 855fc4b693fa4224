"""The coordinator's RPCs: thin translations between messages and the federation's rules."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
import numpy as np

from laser_vfl.coordinator.api.client_reports import MAX_TEXT, read_address, read_report, short_text
from laser_vfl.coordinator.api.directive_messages import (
    directive_message,
    settings_message,
    status_message,
)
from laser_vfl.coordinator.rules import directives
from laser_vfl.coordinator.rules.alignment.alignment import Alignment, Lists, group_lists
from laser_vfl.coordinator.rules.directives import Commitment, Directive, Publication
from laser_vfl.coordinator.rules.federation import Federation
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.coordinator.storage.state_persister import StatePersister
from laser_vfl.core.alignment import DIGEST_BYTES, check_distinct
from laser_vfl.core.alignment_purpose import TABLES_UNFIT, AlignmentPurpose
from laser_vfl.core.errors import (
    AddressError,
    AlignmentOver,
    ContractError,
    DataError,
    LimitExceeded,
    MismatchError,
    NotRegistered,
    TrainingStopped,
    printable,
    quoted,
)
from laser_vfl.core.release import __version__
from laser_vfl.core.token_bucket import Bucket
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.security.access import caller_text, check_on_roster, identify
from laser_vfl.transport.alignment_messages import TABLE_NAMES, TABLES, table_places
from laser_vfl.transport.deadlines import NEXT_S, SLOWEST_BYTES_PER_S, in_time
from laser_vfl.transport.protocol import CHUNK_BYTES, PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorServicer

log = logging.getLogger(__name__)

TICK_S = 0.25

COALESCED_S = 0.02
"""Changes within so short a time are told together."""

HEARTBEATS_PER_S = 20.0
HEARTBEATS_AT_ONCE = 100
"""A client sends one each second, and one whenever its state or one of its streams changes."""
TOO_MANY_S = 2.0
"""How long a client stays away that has sent more."""

ADDRESSES_PER_S = 0.1
ADDRESSES_AT_ONCE = 10
"""A client that is restarted may have another address; one that moves without end is not heeded."""

GROUPS_PER_MESSAGE = 10_000
ROWS_PER_MESSAGE = CHUNK_BYTES // 8

NO_TERMS: Mapping[str, str] = MappingProxyType({})

Addresses = tuple[tuple[str, str], ...]
Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorService(CoordinatorServicer):
    """Serves one federation. Everything runs on one event loop, so the rules need no locks."""

    def __init__(
        self,
        name: str,
        training: TrainingSettings,
        federation: Federation,
        memory: StatePersister,
        run_terms: Mapping[str, str] = NO_TERMS,
    ) -> None:
        """`run_terms` is what else decides about runs, as JSON by the keys of coordinator.yaml."""
        self._name = name
        self._run_terms = run_terms
        self._training = training
        self._federation = federation
        self._alignments = federation.alignments
        self._registry = federation.registry
        self._persister = memory
        self._changed = asyncio.Event()
        """Set, and replaced, when something was published."""
        self._told: dict[int, tuple[Directive, Addresses, Publication]] = {}
        """What each process in a session is told, by its incarnation; all of it is on disk."""
        self._num_changes = self._num_published = self._num_failed = 0
        self._grouped_at = 0
        """The change by which the last alignment was grouped."""
        self._publishing: asyncio.Task[None] | None = None
        self._heartbeats: dict[str, Bucket] = {}
        """How fast each client may send heartbeats."""
        self._addresses: dict[str, tuple[str, Bucket]] = {}
        """The last address of each client, and how often it may have another."""
        self._grouping: set[asyncio.Task[None]] = set()

    async def keep_time(self) -> None:
        """Let time pass for the rules, for as long as the daemon lives."""
        while True:
            self._federation.tick(time.monotonic())
            self._publish_change()
            self._start_grouping()
            await self._persister.forget_results(self._federation)
            await asyncio.sleep(TICK_S)

    async def settle(self) -> None:
        """Wait until the last change is on disk, or could not be written."""
        await self._is_on_disk(self._num_changes)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        """Check that a client fits, and tell it what is the same for everybody."""
        self._check_fits(request)
        client = identify(request.client).name
        self._registry.check_listed(client)
        address = read_address(request.address)
        self._check_move(client, address)
        registration = self._federation.register(
            client,
            nonce=short_text(request.nonce, "a nonce"),
            address=address,
            has_head=request.has_head,
            wants_run=request.wants_run,
            now=time.monotonic(),
            identity=caller_text(),
        )
        if not await self._is_on_disk(self._publish_change()):
            raise AddressError("the coordinator cannot write its state", hint="see its log")
        return pb.RegisterResponse(
            incarnation=registration.incarnation,
            roster=self._federation.roster,
            training=settings_message(self._training),
            alignment=self._alignments.scheme,
        )

    async def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:
        """Take a client's word for its list of points."""
        registration = self._find(request, context)
        alignment = self._alignments.of(registration, request.alignment)
        commitment = Commitment(
            registration.client, request.num_points, request.sha256, request.num_known
        )
        with self._ending(alignment, registration):
            alignment.commit(commitment)
        self._publish_change()
        return pb.CommitResponse()

    async def SubmitIds(self, requests: Any, context: Any) -> pb.SubmitIdsResponse:
        """Collect a list of blinded ids."""
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
                begun_at = time.monotonic()
                blinded, numbers = bytearray(first.blinded), bytearray(first.tables)
                num_ids = max(len(blinded) // DIGEST_BYTES, len(numbers))
                alignment.check_room(registration.client, table, num_ids)
                while (request := await in_time(anext(iterator, None), NEXT_S)) is not None:
                    blinded += request.blinded
                    numbers += request.tables
                    alignments.of(registration, first.alignment)
                    num_ids = max(len(blinded) // DIGEST_BYTES, len(numbers))
                    alignment.check_room(registration.client, table, num_ids)
                    most_s = NEXT_S + len(blinded) / SLOWEST_BYTES_PER_S
                    if time.monotonic() - begun_at > most_s:
                        raise ContractError("a list comes too slowly")
                if len(blinded) % DIGEST_BYTES:
                    raise ContractError(f"blinded ids have {DIGEST_BYTES} bytes each")
                rows = np.frombuffer(blinded, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
                await asyncio.to_thread(check_distinct, rows)
            self._find(first, context)
            alignment = alignments.of(registration, first.alignment)
            places = table_places(numbers) if alignment.tells_tables or numbers else None
            alignment.submit(registration.client, table, rows, places)
        self._publish_change()
        self._start_grouping()
        return pb.SubmitIdsResponse(num_ids=len(rows))

    async def FetchAlignment(self, request: pb.FetchAlignmentRequest, context: Any) -> None:  # type: ignore[override]
        """Wait until everybody has submitted, then tell a client about its own rows."""
        while True:
            registration = self._find(request, context)
            if isinstance(registration.verdict, directives.Stopped):
                raise TrainingStopped(registration.verdict.reason, hint="see the coordinator's log")
            tables = self._federation.outcome(registration, request.alignment)
            if tables is not None and self._num_published >= self._grouped_at:
                break
            await self._changed.wait()
        for table, alignment in tables.items():
            code = TABLES[table]
            for start in range(0, len(alignment.groups), GROUPS_PER_MESSAGE):
                piece = alignment.groups[start : start + GROUPS_PER_MESSAGE]
                groups = [pb.Group(observed=g.observed, size=g.size) for g in piece]
                await context.write(pb.FetchAlignmentResponse(table=code, groups=groups))
            for group, rows in alignment.rows.items():
                for start in range(0, len(rows), ROWS_PER_MESSAGE):  # a caller may not read on
                    data = rows[start : start + ROWS_PER_MESSAGE].astype("<i8").tobytes()
                    part = pb.GroupRows(group=group, rows=data)
                    await context.write(pb.FetchAlignmentResponse(table=code, rows=part))
        self._alignments.fetched(registration, request.alignment)

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
        self._publish_change()
        return pb.RefuseAlignmentResponse()

    async def DryRun(self, request: pb.DryRunRequest, context: Any) -> pb.DryRunResponse:
        """Align everybody who is there, and train nothing; or do not, if nobody waits for it."""
        registration = self._find(request, context)
        now = time.monotonic()
        if request.withdrawn:
            self._alignments.withdraw_dry_run(registration.client)
        else:
            self._federation.dry_run(registration, now)
        self._federation.tick(now)
        self._publish_change()
        number = self._alignments.number_of_dry_run(registration)
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
            while True:
                self._check_pace(registration.client)
                if (heartbeat := await anext(iterator, None)) is None:
                    break
                self._hear(registration, heartbeat)
        finally:
            self._federation.disconnected(registration, session, time.monotonic())
            self._publish_change()
            pusher.cancel()
            await asyncio.gather(pusher, return_exceptions=True)

    async def Retrain(self, request: pb.RetrainRequest, context: Any) -> pb.RetrainResponse:
        """Ask everybody for a new run."""
        seed = self._federation.retrain(request.seed if request.HasField("seed") else None)
        self._federation.tick(time.monotonic())
        await self._is_on_disk(self._publish_change())
        return pb.RetrainResponse(seed=seed, waiting_for=self._federation.absent)

    async def ApproveRun(self, request: pb.ApproveRunRequest, context: Any) -> pb.RetrainResponse:
        """Let the run start that a client asks for."""
        seed = request.seed if request.HasField("seed") else None
        seed = self._federation.approve(short_text(request.client, "the name of a client"), seed)
        self._federation.tick(time.monotonic())
        await self._is_on_disk(self._publish_change())
        return pb.RetrainResponse(seed=seed, waiting_for=self._federation.absent)

    async def RejectRun(self, request: pb.RejectRunRequest, context: Any) -> pb.RejectRunResponse:
        """Tell a client that the run that it asks for does not start."""
        self._federation.reject(short_text(request.client, "the name of a client"))
        await self._is_on_disk(self._publish_change())
        return pb.RejectRunResponse()

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        """Take back a run that is asked for, or end its alignment."""
        run = self._federation.cancel(time.monotonic())
        await self._is_on_disk(self._publish_change())
        return pb.CancelRunResponse(run=run)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.FederationStatus:
        """Tell how the federation stands."""
        check_on_roster(self._federation.roster)
        status = self._federation.status(time.monotonic())
        return status_message(self._name, self._training, self._run_terms, status)

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
            self._registry.check_listed(client)
        except MismatchError as error:
            response.problem = str(error)
            return response
        for peer, address in self._federation.addresses():
            response.addresses.add(client=peer, address=address)
        return response

    def _check_fits(self, request: pb.RegisterRequest | pb.GreetRequest) -> None:
        """Refuse a client of another protocol version, or of another federation."""
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

    def _check_move(self, client: str, address: str) -> None:
        """Refuse a new address of a client that has had too many; all others look each of them up.

        A daemon that is restarted on another port may come back with it at once.
        """
        known, bucket = self._addresses.get(client) or (
            "",
            Bucket(ADDRESSES_PER_S, burst=ADDRESSES_AT_ONCE),
        )
        if address != known:
            if wait_s := bucket.wait_s(time.monotonic()):
                raise LimitExceeded(
                    f"{client} has had too many addresses in a short time",
                    hint=f"come back in {wait_s:.0f} s, or with the address from before",
                    retry_after_s=wait_s,
                )
            bucket.take(1)
        self._addresses[client] = (address, bucket)

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
                self._publish_change()
            raise

    def _start_grouping(self) -> None:
        """Group the lists of an alignment that has them all."""
        taken = self._alignments.take_lists()
        if taken is not None:
            task = asyncio.create_task(self._group(*taken))
            self._grouping.add(task)
            task.add_done_callback(self._grouping.discard)

    async def _group(self, alignment: Alignment, lists: Lists) -> None:
        """Group lists and write the outcome, away from the event loop; then tell the rules."""
        try:
            results = await asyncio.to_thread(group_lists, self._federation.roster, lists)
        except Exception:
            log.exception("an alignment could not be grouped; this is a bug")
            self._alignments.abort(alignment, "the coordinator failed", time.monotonic())
            return
        if alignment.purpose is AlignmentPurpose.RUN:
            await self._persister.write_results(alignment.id, results)
        self._federation.grouped(alignment, results, time.monotonic())
        self._grouped_at = self._publish_change()

    def _hear(self, registration: Registration, heartbeat: pb.Heartbeat) -> None:
        self._federation.find(registration.client, registration.incarnation)
        if heartbeat.state == pb.CLIENT_STATE_GONE:
            reason, problem = (
                printable(text[:MAX_TEXT]) for text in (heartbeat.reason, heartbeat.problem)
            )
            self._federation.gone(registration, reason, problem)
        else:
            report = read_report(heartbeat, self._federation.roster)
            self._federation.heartbeat(registration, report, time.monotonic())
        self._publish_change()

    def _check_pace(self, client: str) -> None:
        """End the session of a client that sends too many heartbeats.

        They are not read more slowly: what it says would be older and older, and all others would
        wait for what it did long ago.
        """
        bucket = self._heartbeats.setdefault(
            client, Bucket(HEARTBEATS_PER_S, burst=HEARTBEATS_AT_ONCE)
        )
        bucket.take(1)
        if bucket.wait_s(time.monotonic()):
            raise LimitExceeded(
                f"{client} sends too many heartbeats",
                hint=f"come back in {TOO_MANY_S:g} s",
                retry_after_s=TOO_MANY_S,
            )

    async def _push(self, registration: Registration, context: Context) -> None:
        last: object = None
        while self._federation.knows(registration):
            changed = self._changed  # of this moment: it is replaced while a directive is written
            told = self._told.get(registration.incarnation)
            if told is not None and told != last:
                await context.write(directive_message(*told))
                last = told
            await changed.wait()

    def _publish_change(self) -> int:
        """Publish a change to all sessions once it is on disk; return the number of the change."""
        self._num_changes += 1
        if self._publishing is None or self._publishing.done():
            if self._publishing is not None:
                self._publishing.result()  # which raises what went wrong in it
            self._publishing = asyncio.create_task(self._publish())
        return self._num_changes

    async def _publish(self) -> None:
        """Write what has changed and tell it; changes that come meanwhile are told together.

        What is told is of the very moment of which the state is written.
        """
        while self._num_published < self._num_changes:
            change = self._num_changes
            to_all = (self._federation.addresses(), self._federation.publication)
            told = {
                registration.incarnation: (self._federation.directive(registration), *to_all)
                for registration in self._registry.values()
                if registration.in_session
            }
            is_on_disk = await self._persister.keep(self._federation)
            if is_on_disk:
                self._told, self._num_published = told, change
            else:
                self._num_failed = change
            self._changed.set()
            self._changed = asyncio.Event()
            if not is_on_disk:
                return  # the next change tries again; time itself is one
            await asyncio.sleep(COALESCED_S)

    async def _is_on_disk(self, change: int) -> bool:
        """Wait until a change is on disk, or could not be written."""
        while max(self._num_published, self._num_failed) < change:
            await self._changed.wait()
        return self._num_published >= change


def _table(code: int) -> str:
    if code not in TABLE_NAMES:
        raise ContractError("a list of ids is of one of the tables")
    return TABLE_NAMES[code]
