"""One request's way: own representation, ask all peers at once, answer when the time has come."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.serving.limits.fair_budget import FairBudget, Holding
from laser_vfl.client.serving.limits.request_cost import bytes_of, check_fits, most_bytes
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.peer_client import PeerClient
from laser_vfl.client.serving.prediction_counts import PredictionCounts
from laser_vfl.client.serving.request_batcher import PeerReplies, RequestBatcher
from laser_vfl.client.serving.request_rows import RowResolver, Rows, check_request
from laser_vfl.core.errors import NotReady
from laser_vfl.security.access import caller_text
from laser_vfl.v1 import prediction_pb2 as pb

MIN_MARGIN_S = 0.002
MARGIN_SHARE = 0.05

MAX_DEADLINE_S = 3600.0
"""A request does not wait for peers any longer, whatever it says."""

MAX_WAIT_S = 60.0
"""For so long a request waits for room, if its caller does."""


class SamplePredictor:
    """Answers requests: finds the rows, has them batched with others, and encodes predictions."""

    def __init__(
        self,
        config: ClientConfig,
        registry: ModelRegistry,
        resolver: RowResolver,
        peers: Mapping[str, PeerClient],
        counts: PredictionCounts,
        budget: FairBudget,
    ) -> None:
        """`budget` is memory for requests, in bytes."""
        self._client = config.name
        self._deadline_s = config.serving.deadline_s
        self._registry = registry
        self._resolver = resolver
        self._peers = peers
        self._counts = counts
        self._budget = budget
        self._encoding = FairBudget(1, "the thread that encodes rows")
        self._batcher = RequestBatcher(peers, together=config.serving.batch_requests)

    async def predict(self, request: pb.PredictRequest) -> pb.PredictResponse:
        """Answer a request from within this process."""
        started = time.monotonic()
        model = self._ready(request)
        num_bytes = bytes_of(request, model.row_cost)
        total = self._budget.total
        check_fits(num_bytes, len(request.ids), total, total)
        wait_until = started + self._patience_s(request, None)
        async with self._budget.holding(caller_text(), num_bytes, wait_until) as held:
            return await self._answer(model, request, None, started, held)

    @asynccontextmanager
    async def answered(
        self, content: bytes, time_left_s: float | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Parse a request when there is room for it, and answer it, which is held by this.

        Gives how many ids there were, how many of them were predicted, and the answer.

        `time_left_s` is what the transport says of the caller's patience.
        """
        started, caller = time.monotonic(), caller_text()
        model, total = self._model(), self._budget.total
        most = min(most_bytes(content, model.row_cost, model.max_rows), total)
        patience_s = MAX_WAIT_S if time_left_s is None else min(time_left_s, MAX_WAIT_S)
        wait_until = started + patience_s - _margin_s(patience_s)
        async with self._budget.holding(caller, most, wait_until) as held:
            request = pb.PredictRequest.FromString(content)
            del content
            model = self._ready(request)
            num_bytes = bytes_of(request, model.row_cost)
            check_fits(num_bytes, len(request.ids), held.amount, total)
            held.shrink(num_bytes)
            response = await self._answer(model, request, time_left_s, started, held)
            num_ids, num_errors = len(request.ids), len(response.errors)
            answer = response.SerializeToString()
            del request, response
            held.shrink(len(answer))
            yield num_ids, num_ids - num_errors, answer

    def _model(self) -> ServedModel:
        """Return what predictions are made with."""
        model = self._registry.ready()
        if model.head is None:
            raise NotReady(
                f"{self._client} has no head to predict with",
                hint=f"ask {' or '.join(model.model.heads)}",
            )
        return model

    def _ready(self, request: pb.PredictRequest) -> ServedModel:
        """Return the model to answer a request with, if it can be answered."""
        model = self._model()
        check_request(model, request)
        return model

    async def _answer(
        self,
        model: ServedModel,
        request: pb.PredictRequest,
        time_left_s: float | None,
        started: float,
        held: Holding,
    ) -> pb.PredictResponse:
        """Answer a request. A caller that hangs up meanwhile is heard when its rows are let go of.

        A thread cannot be interrupted, so that memory that was given back before would still be
        in use.
        """
        give_up_at = started + self._patience_s(request, time_left_s)
        caller = caller_text()
        if self._resolver.is_quick(request):
            rows = self._resolver.resolve(model, request, caller)
        else:
            # One caller after another: those with much to encode are in nobody else's way.
            until = max(give_up_at, time.monotonic() + MAX_WAIT_S)
            async with self._encoding.holding(caller, 1, until):
                loop = asyncio.get_running_loop()
                executor, resolve = self._registry.executor, self._resolver.resolve
                work = loop.run_in_executor(executor, resolve, model, request, caller)
                rows = await _to_its_end(work)
        response = model.answer_form()
        response.blocks.extend([0] * len(request.ids))
        for place, message in sorted(rows.errors.items()):
            response.errors.add(place=place, message=message)
        if rows.not_aligned is not None:
            response.unaligned.num = rows.not_aligned.num
            response.unaligned.reason = rows.not_aligned.reason
        if len(rows.places):
            replies = await self._batcher.submit(
                model,
                rows.digests,
                rows.take_inputs(),
                give_up_at,
                lambda: held.shrink(bytes_of(request, model.row_cost, resting=True)),
            )
        else:
            nobody = np.empty(0, dtype=np.uint64)
            replies = PeerReplies(torch.empty(0, model.num_outputs), nobody, {})
        by_subset = Counter(replies.blocks.tolist())
        _fill(response, model, rows, replies, by_subset)
        self._report(response, replies)
        self._counts.add(by_subset, len(rows.errors), time.monotonic() - started)
        return response

    async def close(self) -> None:
        """Answer no more."""
        await self._batcher.close()

    def _patience_s(self, request: pb.PredictRequest, time_left_s: float | None) -> float:
        """Return how long to wait for peers: until shortly before the caller's deadline."""
        deadline_s = self._deadline_s
        if request.HasField("deadline_s"):
            deadline_s = request.deadline_s
        if time_left_s is not None:
            deadline_s = min(deadline_s, max(time_left_s, 0.0))
        deadline_s = min(deadline_s, MAX_DEADLINE_S)
        return deadline_s - _margin_s(deadline_s)

    def _report(self, response: pb.PredictResponse, replies: PeerReplies) -> None:
        """Say what became of the question to each peer."""
        for name, reply in replies.by_peer.items():
            num_available = reply.num_available
            response.peers.add(
                client=name, problem=reply.problem, num_available=num_available, up=reply.is_up
            )
            self._peers[name].count(len(replies.blocks), num_available)


async def _to_its_end(work: "asyncio.Future[Rows]") -> Rows:
    """Wait for a thread, also when nobody wants its outcome any more."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # which nobody hears
        raise


def _margin_s(deadline_s: float) -> float:
    """Return how long before a deadline to answer, so that the answer comes in time."""
    return min(max(MIN_MARGIN_S, MARGIN_SHARE * deadline_s), deadline_s / 2)


def _fill(
    response: pb.PredictResponse,
    model: ServedModel,
    rows: Rows,
    replies: PeerReplies,
    by_subset: Iterable[int],
) -> None:
    """Write predictions at their places in the request."""
    published, labels = model.model, model.model.labels
    assert labels is not None
    num, places, outputs_no = len(response.blocks), rows.places, replies.outputs_no
    response.blocks[:] = _spread(replies.blocks, places, num).tolist()
    if replies.missing is not None and replies.missing.any():
        response.missing_blocks[:] = _spread(replies.missing, places, num).tolist()
    if labels.task == "regression":
        values = outputs_no.squeeze(1).double().numpy() * labels.std + labels.mean
        response.values.extend(_spread(values, places, num).tolist())
    else:
        if labels.task == "multiclass":
            probabilities, chosen = outputs_no.softmax(dim=1), outputs_no.argmax(dim=1)
        else:
            both = torch.cat([-outputs_no, outputs_no], dim=1)
            probabilities, chosen = both.sigmoid(), (outputs_no.squeeze(1) > 0).long()
        response.class_places.extend(_spread(chosen.numpy(), places, num).tolist())
        response.probabilities = _spread(probabilities.numpy(), places, num).tobytes()
    for mask in sorted(by_subset):
        response.scores.add(blocks=mask, score=published.scores.get(mask))


def _spread(
    values: npt.NDArray[np.generic], places: npt.NDArray[np.int64], num: int
) -> npt.NDArray[np.generic]:
    if len(places) == num:
        return values
    full = np.zeros((num, *values.shape[1:]), dtype=values.dtype)
    full[places] = values
    return full
