"""One request's way: own representation, ask all peers at once, answer when the time has come."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.answers import Answer
from laser_vfl.client.questions import Rows, check_request, resolve
from laser_vfl.client.serving import Edition, Serving
from laser_vfl.core.errors import NotReady
from laser_vfl.v1 import prediction_pb2 as pb

QUICKLY_RESOLVED = 64
"""So many ids are looked up on the event loop; more of them in a thread."""

MIN_MARGIN_S = 0.002
MARGIN_SHARE = 0.05


@dataclass(frozen=True)
class Fused:
    """The averaged representation of each row, and the blocks that are in it."""

    representation_nd: torch.Tensor
    blocks: npt.NDArray[np.uint64]


async def predict(
    serving: Serving, request: pb.PredictRequest, time_left_s: float | None
) -> pb.PredictResponse:
    """Answer a request. `time_left_s` is what the transport says of the caller's patience."""
    started = time.monotonic()
    edition = serving.ready()
    if edition.head is None:
        raise NotReady(
            f"{serving.config.name} has no labels, and so no head to predict with",
            hint=f"ask {' or '.join(edition.model.heads)}",
        )
    check_request(request)
    give_up_at = started + _patience_s(serving, request, time_left_s)
    if len(request.ids) <= QUICKLY_RESOLVED:
        rows = resolve(serving, edition, request)
    else:
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(serving.executor, resolve, serving, edition, request)
    response = _empty_response(edition, request, rows)
    fused, answers = await _gather(serving, edition, rows, give_up_at)
    outputs_no = torch.empty(0, edition.num_outputs)
    if len(rows.places):
        outputs_no = await edition.head.submit(fused.representation_nd)
    _fill(response, edition, rows, fused, outputs_no)
    _report(response, serving, rows, answers, fused)
    return response


def _patience_s(serving: Serving, request: pb.PredictRequest, time_left_s: float | None) -> float:
    """Return how long to wait for peers: until shortly before the caller's deadline."""
    deadline_s = serving.config.serving.deadline_s
    if request.HasField("deadline_s"):
        deadline_s = request.deadline_s
    elif time_left_s is not None:
        deadline_s = min(deadline_s, max(time_left_s, 0.0))
    margin_s = max(MIN_MARGIN_S, MARGIN_SHARE * deadline_s)
    return deadline_s - min(margin_s, deadline_s / 2)


async def _gather(
    serving: Serving, edition: Edition, rows: Rows, give_up_at: float
) -> tuple[Fused, dict[str, Answer | None]]:
    """Ask everybody, compute the own representation meanwhile, and average what has come."""
    model = edition.model
    if not len(rows.places):
        return Fused(torch.empty(0), np.empty(0, dtype=np.uint64)), {}
    subject, digests = edition.subject, rows.digests.tobytes()
    asked_at = time.monotonic()
    questions = {
        name: serving.askers[name].ask(subject, digests, give_up_at)
        for name in model.roster
        if name in serving.askers and name in model.addresses
    }
    own_nd = await edition.representation.submit(rows.inputs)
    pending = [question for question in questions.values() if not question.done()]
    if pending:
        await asyncio.wait(pending, timeout=max(0.0, give_up_at - time.monotonic()))
    waited_s = time.monotonic() - asked_at
    answers: dict[str, Answer | None] = {}
    for name, question in questions.items():
        answers[name] = question.result() if question.done() else None
        if not question.done():
            serving.askers[name].gave_up(waited_s)
    return _fuse(edition, own_nd, answers), answers


def _fuse(edition: Edition, own_nd: torch.Tensor, answers: Mapping[str, Answer | None]) -> Fused:
    model = edition.model
    total_nd = own_nd.numpy().copy()
    num_blocks = np.ones((len(total_nd), 1), dtype=np.float32)
    blocks = np.full(len(total_nd), 1 << model.me, dtype=np.uint64)
    for name, answer in answers.items():
        if answer is not None and len(answer.places):
            total_nd[answer.places] += answer.representations
            num_blocks[answer.places] += 1
            blocks[answer.places] |= np.uint64(1 << model.roster.index(name))
    return Fused(torch.from_numpy(total_nd / num_blocks), blocks)


def _empty_response(edition: Edition, request: pb.PredictRequest, rows: Rows) -> pb.PredictResponse:
    model, labels = edition.model, edition.model.labels
    assert labels is not None
    return pb.PredictResponse(
        run=model.run,
        task=labels.task,
        classes=labels.classes,
        class_kind=labels.kind,
        roster=model.roster,
        blocks=[0] * len(request.ids),
        score_name=model.score_name,
        errors=[pb.SampleError(place=p, message=m) for p, m in sorted(rows.errors.items())],
    )


def _fill(
    response: pb.PredictResponse,
    edition: Edition,
    rows: Rows,
    fused: Fused,
    outputs_no: torch.Tensor,
) -> None:
    """Write predictions at their places in the request."""
    model, labels = edition.model, edition.model.labels
    assert labels is not None
    num, places = len(response.blocks), rows.places
    response.blocks[:] = _spread(fused.blocks, places, num).tolist()
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
    for mask in sorted(set(fused.blocks.tolist())):
        response.scores.add(blocks=mask, score=model.scores.get(mask))


def _spread(
    values: npt.NDArray[np.generic], places: npt.NDArray[np.int64], num: int
) -> npt.NDArray[np.generic]:
    if len(places) == num:
        return values
    full = np.zeros((num, *values.shape[1:]), dtype=values.dtype)
    full[places] = values
    return full


def _report(
    response: pb.PredictResponse,
    serving: Serving,
    rows: Rows,
    answers: Mapping[str, Answer | None],
    fused: Fused,
) -> None:
    """Say what became of the questions, and count."""
    serving.num_requests += 1
    serving.num_sample_errors += len(rows.errors)
    num = len(fused.blocks)
    for name, answer in answers.items():
        problem = answer.problem if answer else "no answer in time"
        num_available = len(answer.places) if answer else 0
        response.peers.add(client=name, problem=problem, num_available=num_available)
        serving.askers[name].num_wanted += num
        serving.askers[name].num_available += num_available
    serving.num_predicted += num
    serving.num_by_subset.update(fused.blocks.tolist())
