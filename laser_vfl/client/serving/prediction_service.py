"""The gRPC service for applications and operators: predictions, and how this client is doing."""

import time
from dataclasses import asdict
from typing import Any, Protocol

import grpc.aio

from laser_vfl.client.serving.answering import SamplePredictor
from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.serving_report import ServingReport
from laser_vfl.client.session.coordinator_session import ClientInfo
from laser_vfl.client.session.progress import Progress
from laser_vfl.core.errors import ContractError
from laser_vfl.core.release import __version__
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.security.access import caller_text
from laser_vfl.transport.deadlines import NEXT_S, in_time, written_in_time
from laser_vfl.transport.message_limits import REQUEST_BYTES
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.coordinator_pb2 import Work


class RunStatus(Protocol):
    """What this service asks of the part of the client that takes part in runs."""

    run_id: str
    roster: tuple[str, ...]

    @property
    def activity_text(self) -> str:
        """What this client does now, in words."""

    @property
    def progress(self) -> Progress:
        """What happened in the run under way, or in the last one."""

    @property
    def next_step(self) -> int:
        """How far the run under way is."""

    @property
    def num_steps(self) -> int:
        """How many steps the run under way has."""

    async def dry_run(self) -> Any:
        """Align everybody's tables as they are now."""


class PredictionService:
    """Decodes requests, asks the part of the client that knows, and encodes the answer."""

    def __init__(
        self,
        predictor: SamplePredictor,
        serving: ServingReport,
        next_model: NextModel,
        runs: RunStatus,
        client_info: ClientInfo,
        audit: AuditLog,
        reading: FairBudget,
    ) -> None:
        """`reading` is memory for requests that are being read, in bytes."""
        self._reading = reading
        self._predictor = predictor
        self._serving = serving
        self._next_model = next_model
        self._runs = runs
        self._client_info = client_info
        self._audit = audit

    async def predict(self, requests: Any, context: Any) -> None:
        """Read a serialised request, predict with whatever blocks can be had, write the answer.

        Requests are read when there is room for them: what gRPC holds of those that are not is
        little.
        """
        caller = caller_text()
        until = time.monotonic() + (context.time_remaining() or NEXT_S)
        async with self._reading.holding(caller, REQUEST_BYTES, until) as reading:
            content = await in_time(context.read(), NEXT_S)
            if content is grpc.aio.EOF:
                raise ContractError("no message came")
            reading.shrink(len(content))
            async with self._predictor.answered(content, context.time_remaining()) as answered:
                del content
                reading.shrink(0)
                num_ids, num_predicted, answer = answered
                self._audit.count(
                    "predicted",
                    {"caller": caller},
                    requests=1,
                    ids=num_ids,
                    ids_predicted=num_predicted,
                )
                del answered
                await written_in_time(context.write(answer))

    async def status(self, request: pb.GetClientStatusRequest, context: Any) -> pb.ClientStatus:
        """Tell what this daemon does, serves and has served."""
        runs, who = self._runs, self._client_info
        progress = runs.progress
        status = pb.ClientStatus(
            federation=who.federation,
            client=who.client,
            release=__version__,
            address=who.address,
            has_head=who.has_head,
            activity=runs.activity_text,
            training_run=runs.run_id,
            next_step=runs.next_step,
            num_steps=runs.num_steps,
            generation=progress.generation,
            members=progress.members,
            num_redone=progress.num_redone,
            num_dropped=progress.dropped,
            num_offences=progress.offences,
        )
        if (work := progress.work.now).work:
            status.work.CopyFrom(Work(**asdict(work)))
        await self._serving.describe(status, runs.roster)
        return status

    async def publish(self, request: pb.PublishRequest, context: Any) -> pb.PublishResponse:
        """Publish a model that this client holds back."""
        await self._next_model.publish(request.run)
        self._audit.note("published", run=request.run, caller=caller_text())
        return pb.PublishResponse()

    async def align(self, request: pb.AlignRequest, context: Any) -> pb.AlignResponse:
        """Align everybody's tables as they are now, and tell how they overlap."""
        started = time.monotonic()
        aligned = await self._runs.dry_run()
        response = pb.AlignResponse(
            client=self._client_info.client,
            scheme=aligned.scheme,
            roster=self._runs.roster,
            members=aligned.call.names,
            seconds=time.monotonic() - started,
        )
        for table, alignment in aligned.tables.items():
            overlap = response.tables.add(table=table, num_rows=alignment.num_rows)
            for group in alignment.groups:
                overlap.overlaps.add(blocks=group.observed, num_samples=group.size)
        return response
