"""The coordinator's RPCs: thin translations between messages and the federation's rules."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import numpy as np

from laser_vfl.coordinator import directives
from laser_vfl.coordinator.directives import State
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.messages import directive_message, status_message
from laser_vfl.coordinator.records import Registration
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError, MismatchError, TrainingStopped, quoted
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorServicer
from laser_vfl.wire.protocol import CHUNK_BYTES, PROTOCOL_VERSION

TICK_S = 0.25

GROUPS_PER_MESSAGE = 10_000

MAX_TEXT = 300
"""How long an address or the id of a run may be."""

_TABLES = {pb.TABLE_TRAIN: "train", pb.TABLE_TEST: "test"}
_STATES = {
    pb.CLIENT_STATE_JOINING: State.JOINING,
    pb.CLIENT_STATE_READY: State.READY,
    pb.CLIENT_STATE_RUNNING: State.RUNNING,
    pb.CLIENT_STATE_FINISHED: State.FINISHED,
}

Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorService(CoordinatorServicer):
    """Serves one federation. Everything runs on one event loop, so the rules need no locks."""

    def __init__(self, name: str, training: TrainingSettings, federation: Federation) -> None:
        self._name = name
        self._training = training
        self._federation = federation
        self._changed = asyncio.Event()

    async def keep_time(self) -> None:
        """Let time pass for the rules, for as long as the daemon lives."""
        while True:
            self._federation.tick(time.monotonic())
            self._announce()
            await asyncio.sleep(TICK_S)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        """Check that a client fits, and tell it what is the same for everybody."""
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
        registration = self._federation.register(
            request.client,
            nonce=request.nonce,
            address=_short(request.address, "an address"),
            has_head=request.has_head,
            wants_run=request.wants_run,
            now=time.monotonic(),
        )
        self._announce()
        return pb.RegisterResponse(
            incarnation=registration.incarnation,
            roster=self._federation.roster,
            training=pb.TrainingSettings(**self._training.model_dump()),
        )

    async def SubmitIds(self, requests: Any, context: Any) -> pb.SubmitIdsResponse:
        """Collect the blinded ids of one table."""
        iterator: AsyncIterator[pb.SubmitIdsRequest] = aiter(requests)
        first = await anext(iterator, None)
        if first is None or first.table not in _TABLES:
            raise ContractError("a list of ids begins with the client and the table")
        registration = self._federation.find(first.client, first.incarnation)
        digests = first.digests + b"".join([r.digests async for r in iterator])
        if len(digests) % DIGEST_BYTES:
            raise ContractError(f"blinded ids have {DIGEST_BYTES} bytes each")
        rows = np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        self._federation.submit(registration, _TABLES[first.table], rows, time.monotonic())
        self._announce()
        return pb.SubmitIdsResponse(num_ids=len(rows))

    async def FetchAlignment(self, request: pb.FetchAlignmentRequest, context: Any) -> None:  # type: ignore[override]
        """Wait until a run can start, then tell a client about its own rows."""
        while True:
            registration = self._federation.find(request.client, request.incarnation)
            if isinstance(registration.verdict, directives.Stopped):
                raise TrainingStopped(registration.verdict.reason, hint="see the coordinator's log")
            if (found := self._federation.alignments(registration)) is not None:
                break
            await self._changed.wait()
        run, tables = found
        for code, table in _TABLES.items():
            alignment = tables[table]
            for start in range(0, len(alignment.groups), GROUPS_PER_MESSAGE):
                piece = alignment.groups[start : start + GROUPS_PER_MESSAGE]
                groups = [pb.Group(observed=g.observed, size=g.size) for g in piece]
                await context.write(pb.FetchAlignmentResponse(run=run, table=code, groups=groups))
            for group, rows in alignment.rows.items():
                data = rows.astype("<i8").tobytes()
                for start in range(0, len(data), CHUNK_BYTES):
                    part = pb.GroupRows(group=group, rows=data[start : start + CHUNK_BYTES])
                    await context.write(pb.FetchAlignmentResponse(run=run, table=code, rows=part))

    async def Session(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        """Take heartbeats and push a directive whenever it, or somebody's address, changes."""
        iterator: AsyncIterator[pb.Heartbeat] = aiter(requests)
        first = await anext(iterator, None)
        if first is None:
            return
        registration = self._federation.find(first.client, first.incarnation)
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
        return status_message(self._name, self._federation.status(time.monotonic()))

    def _hear(self, registration: Registration, heartbeat: pb.Heartbeat) -> None:
        self._federation.find(registration.client, registration.incarnation)
        if heartbeat.state == pb.CLIENT_STATE_STOPPED:
            self._federation.stopped(registration, heartbeat.reason)
        elif heartbeat.state in _STATES:
            self._federation.heartbeat(
                registration,
                _STATES[heartbeat.state],
                heartbeat.run,
                heartbeat.next_step,
                time.monotonic(),
                waiting=heartbeat.waiting,
                model_run=_short(heartbeat.model_run, "the id of a run"),
                num_steps=heartbeat.num_steps,
            )
        else:
            raise ContractError("a heartbeat without a state")
        self._announce()

    async def _push(self, registration: Registration, context: Context) -> None:
        last: object = None
        while self._federation.knows(registration):
            directive = self._federation.directive(registration)
            addresses = self._federation.addresses()
            if (directive, addresses) != last:
                await context.write(directive_message(directive, addresses))
                last = (directive, addresses)
            await self._changed.wait()

    def _announce(self) -> None:
        """Wake everybody who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()


def _short(text: str, what: str) -> str:
    """Return a client's text that others will see; refuse what is no single short line."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ContractError(f"{quoted(text)} cannot be {what}")
    return text
