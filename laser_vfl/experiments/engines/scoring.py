"""The paper's metrics: what every client predicts of the samples that it holds, averaged."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.evaluation.metrics import f1, f1_over_clients
from laser_vfl.data.sets import DataSet
from laser_vfl.methods.profiles import MethodProfile

Array = npt.NDArray[Any]
Predicted = Mapping[str, tuple[Array, Array]]


def paper_score(
    method: MethodProfile,
    dataset: DataSet,
    roster: Sequence[str],
    predicted: Predicted,
    seen: npt.NDArray[np.bool_],
    truth: Mapping[str, Array],
) -> tuple[float, dict[str, float | None]]:
    """Return the score of a federation and of each client.

    `predicted` has classes of the data set, and which samples each client holds.
    Accuracy is averaged over the clients that hold a sample, then over samples; F1 over clients,
    each on the samples that it holds.
    """
    if method.needs_all_blocks:
        predicted = _votes_of_all(predicted, dataset.num_classes, roster, seen)
        truth = dict.fromkeys(roster, next(iter(truth.values())))
    by_client: dict[str, float | None] = {}
    right, count = np.zeros(len(seen)), np.zeros(len(seen))
    for name, (classes, held) in predicted.items():
        correct = classes[held] == truth[name][held]
        right[held] += correct
        count[held] += 1
        if dataset.metric == "f1":
            by_client[name] = f1(classes[held] == 1, truth[name][held] == 1)
        else:
            by_client[name] = float(correct.mean()) if len(correct) else None
    if dataset.metric == "f1":
        score = f1_over_clients(list(by_client.values()))
        assert score is not None
        return score, by_client
    return float((right[count > 0] / count[count > 0]).mean()), by_client


def _votes_of_all(
    predicted: Predicted, num_classes: int, roster: Sequence[str], seen: npt.NDArray[np.bool_]
) -> dict[str, tuple[Array, Array]]:
    """Standard VFL: all clients hear what the active party predicts; where it cannot, all guess."""
    ((active, _),) = predicted.values()
    complete = seen.all(axis=1)
    told = {}
    for k, name in enumerate(roster):
        guess = torch.randint(num_classes, (len(seen),)).numpy()
        told[name] = (np.where(complete, active, guess), seen[:, k])
    return told
