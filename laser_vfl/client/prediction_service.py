"""The door for applications and operators: predictions, and how this client is doing."""

import time
from typing import Any

from laser_vfl.client.participation import Participation
from laser_vfl.client.predicting import predict
from laser_vfl.client.published import PublishedModel
from laser_vfl.client.serving import Serving
from laser_vfl.client.session import Introduction
from laser_vfl.core.release import __version__
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.prediction_pb2_grpc import PredictionServicer
from laser_vfl.wire.access import caller_text
from laser_vfl.wire.audit import Audit


class PredictionService(PredictionServicer):
    """Thin translations; what it says comes from elsewhere."""

    def __init__(
        self,
        serving: Serving,
        participation: Participation,
        introduction: Introduction,
        audit: Audit,
    ) -> None:
        self._serving = serving
        self._participation = participation
        self._introduction = introduction
        self._audit = audit

    async def Predict(self, request: pb.PredictRequest, context: Any) -> pb.PredictResponse:
        """Predict with whatever blocks can be had."""
        response = await predict(self._serving, request, context.time_remaining())
        caller = {"caller": caller_text()}
        num_predicted = len(request.ids) - len(response.errors)
        self._audit.count(
            "predicted", caller, requests=1, ids=len(request.ids), ids_predicted=num_predicted
        )
        return response

    async def GetClientStatus(
        self, request: pb.GetClientStatusRequest, context: Any
    ) -> pb.ClientStatus:
        """Tell what this daemon does, serves and has served."""
        serving, participation, who = self._serving, self._participation, self._introduction
        progress = participation.progress
        status = pb.ClientStatus(
            federation=who.federation,
            client=who.client,
            release=__version__,
            address=who.address,
            has_head=who.has_head,
            activity=participation.activity,
            training_run=participation.run_id,
            next_step=participation.next_step,
            num_steps=participation.num_steps,
            serve_problem=serving.serve_problem,
            num_requests=serving.num_requests,
            num_predicted=serving.num_predicted,
            num_sample_errors=serving.num_sample_errors,
            subsets=[
                pb.SubsetCount(blocks=mask, num_predicted=count)
                for mask, count in sorted(serving.num_by_subset.items())
            ],
            generation=progress.generation,
            members=progress.members,
            num_redone=progress.num_redone,
            num_dropped=progress.dropped,
            num_offences=progress.offences,
        )
        if serving.current is not None:
            status.num_held = len(serving.current.holdings)
            _describe(status.model, serving.current.model)
        roster = serving.current.model.roster if serving.current else participation.roster
        known = {*serving.askers, *serving.accounts.by_peer}
        for name in (*(n for n in roster if n in known), *sorted(known.difference(roster))):
            _describe_peer(status.peers.add(client=name), serving, name)
        return status

    async def Align(self, request: pb.AlignRequest, context: Any) -> pb.AlignResponse:
        """Align everybody's tables as they are now, and tell how they overlap."""
        started = time.monotonic()
        aligned = await self._participation.dry_run()
        response = pb.AlignResponse(
            client=self._introduction.client,
            scheme=aligned.scheme,
            roster=self._participation.roster,
            members=aligned.call.names,
            seconds=time.monotonic() - started,
        )
        for table, alignment in aligned.tables.items():
            overlap = response.tables.add(table=table, num_rows=alignment.num_rows)
            for group in alignment.groups:
                overlap.overlaps.add(blocks=group.observed, num_samples=group.size)
        return response


def _describe(message: pb.ServedModel, model: PublishedModel) -> None:
    message.run = model.run
    message.trained_at = model.trained_at
    message.num_steps = model.num_steps
    message.roster.extend(model.roster)
    message.heads.extend(model.heads)
    message.task = model.labels.task if model.labels else ""
    message.score_name = model.score_name
    if model.score is not None:
        message.score = model.score
    for mask, score in model.scores.items():
        message.scores.add(blocks=mask, score=score)


def _describe_peer(message: pb.PeerStatus, serving: Serving, name: str) -> None:
    asker = serving.askers.get(name)
    if asker is not None:
        message.address = asker.address
        message.available = not asker.breaker.is_open
        message.problem = asker.breaker.problem
        message.num_wanted = asker.num_wanted
        message.num_available = asker.num_available
        if asker.breaker.usual_s is not None:
            message.usual_s = asker.breaker.usual_s
    account = serving.accounts.by_peer.get(name)
    if account is not None:
        message.num_requests = account.num_requests
        message.num_ids_asked = account.num_ids_asked
        message.num_ids_served = account.num_ids_served
        message.num_refused = account.num_refused
