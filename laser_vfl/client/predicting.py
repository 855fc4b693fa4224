"""One request's way: own representation, ask all peers at once, answer when the time has come."""

import asyncio
import time
from collections import Counter

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.edition import Edition
from laser_vfl.client.questions import Rows, check_request, resolve
from laser_vfl.client.rounds import Outcome
from laser_vfl.client.serving import Serving
from laser_vfl.core.errors import NotReady
from laser_vfl.v1 import prediction_pb2 as pb

QUICKLY_RESOLVED = 64
"""So many ids are looked up on the event loop; more of them in a thread."""

MIN_MARGIN_S = 0.002
MARGIN_SHARE = 0.05


async def predict(
    serving: Serving, request: pb.PredictRequest, time_left_s: float | None
) -> pb.PredictResponse:
    """Answer a request. `time_left_s` is what the transport says of the caller's patience."""
    started = time.monotonic()
    edition = serving.ready()
    if edition.head is None:
        raise NotReady(
            f"{serving.config.name} has no head to predict with",
            hint=f"ask {' or '.join(edition.model.heads)}",
        )
    check_request(edition, request)
    give_up_at = started + _patience_s(serving, request, time_left_s)
    if len(request.ids) <= QUICKLY_RESOLVED:
        rows = resolve(serving, edition, request)
    else:
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(serving.executor, resolve, serving, edition, request)
    response = _empty_response(edition, request, rows)
    outcome = Outcome(torch.empty(0, edition.num_outputs), np.empty(0, dtype=np.uint64), {})
    if len(rows.places):
        outcome = await serving.rounds.travel(edition, rows.digests, rows.inputs, give_up_at)
    _fill(response, edition, rows, outcome)
    _report(response, serving, rows, outcome, started)
    return response


def _patience_s(serving: Serving, request: pb.PredictRequest, time_left_s: float | None) -> float:
    """Return how long to wait for peers: until shortly before the caller's deadline."""
    deadline_s = serving.config.serving.deadline_s
    if request.HasField("deadline_s"):
        deadline_s = request.deadline_s
    if time_left_s is not None:
        deadline_s = min(deadline_s, max(time_left_s, 0.0))
    margin_s = max(MIN_MARGIN_S, MARGIN_SHARE * deadline_s)
    return deadline_s - min(margin_s, deadline_s / 2)


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
    outcome: Outcome,
) -> None:
    """Write predictions at their places in the request."""
    model, labels = edition.model, edition.model.labels
    assert labels is not None
    num, places, outputs_no = len(response.blocks), rows.places, outcome.outputs_no
    response.blocks[:] = _spread(outcome.blocks, places, num).tolist()
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
    for mask in sorted(set(outcome.blocks.tolist())):
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
    outcome: Outcome,
    started: float,
) -> None:
    """Say what became of the questions, and count."""
    serving.num_requests += 1
    serving.num_sample_errors += len(rows.errors)
    num = len(outcome.blocks)
    for name, answer in outcome.answers.items():
        problem = answer.problem if answer else "no answer in time"
        num_available = len(answer.places) if answer else 0
        response.peers.add(client=name, problem=problem, num_available=num_available)
        serving.askers[name].num_wanted += num
        serving.askers[name].num_available += num_available
    serving.num_predicted += num
    by_subset = Counter(outcome.blocks.tolist())
    serving.num_by_subset.update(by_subset)
    serving.meters.predicted(by_subset, len(rows.errors), time.monotonic() - started)
