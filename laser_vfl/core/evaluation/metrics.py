"""How good predictions are: per client, and over the clients of a federation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # it stands beside what needs torch, and scores are computed without it
    from laser_vfl.core.training.fusion import Task

Array = npt.NDArray[np.float64]
Scores = dict[str, float | None]


def score(task: "Task", predictions: Array, targets: Array) -> Scores:
    """Return the metrics of a task.

    Predictions are class numbers (multiclass), log-odds (binary) or values (regression).
    """
    if task == "multiclass":
        return {"accuracy": _mean(predictions == targets)}
    if task == "binary":
        predicted = predictions > 0
        return {
            "accuracy": _mean(predicted == (targets > 0)),
            "f1": f1(predicted, targets > 0),
            "auc": auc(predictions, targets > 0),
        }
    return {"rmse": rmse(predictions, targets), "r2": r2(predictions, targets)}


def best_constant(task: "Task", targets: Array) -> Scores:
    """Return the best that one prediction for all samples reaches, of each metric of a task.

    The largest class, the positive class for F1, any for AUC, the mean for values.
    """
    if task == "multiclass":
        known = targets[targets >= 0].astype(np.int64)  # others are of no class that is predicted
        most = int(np.bincount(known).max()) if len(known) else 0
        return {"accuracy": most / len(targets) if len(targets) else None}
    if task == "binary":
        positive = targets > 0
        share = _mean(positive)
        return {
            "accuracy": None if share is None else max(share, 1 - share),
            "f1": f1(np.ones_like(positive), positive),
            "auc": auc(np.zeros(len(targets)), positive),
        }
    mean = np.full(len(targets), targets.mean() if len(targets) else 0.0)
    return {"rmse": rmse(mean, targets), "r2": r2(mean, targets)}


def f1(predicted: npt.NDArray[np.bool_], positive: npt.NDArray[np.bool_]) -> float | None:
    """Return 2PR/(P+R) of the positive class; 0 when none was found, None without samples."""
    if not len(positive):
        return None
    found = np.count_nonzero(predicted & positive)
    claimed_and_there = np.count_nonzero(predicted) + np.count_nonzero(positive)
    return 2 * found / claimed_and_there if found else 0.0


def auc(scores: Array, positive: npt.NDArray[np.bool_]) -> float | None:
    """Return the chance that a positive scores above a negative, ties counting half."""
    num_positive = np.count_nonzero(positive)
    num_negative = len(positive) - num_positive
    if not num_positive or not num_negative:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = mean_rank[inverse][positive].sum()
    return float((rank_sum - num_positive * (num_positive + 1) / 2) / num_positive / num_negative)


def rmse(predictions: Array, targets: Array) -> float | None:
    """Return the root of the mean squared error."""
    mean = _mean((predictions - targets) ** 2)
    return None if mean is None else mean**0.5


def r2(predictions: Array, targets: Array) -> float | None:
    """Return the share of the variance that is explained; None when there is none to explain."""
    if not len(targets) or targets.min() == targets.max():
        return None
    total = ((targets - targets.mean()) ** 2).sum()
    return float(1 - ((predictions - targets) ** 2).sum() / total)


def accuracy_over_clients(
    by_observed_set: Sequence[Mapping[str, tuple[float, int]]],
) -> tuple[float | None, int]:
    """Average accuracy over the clients that observe a sample, then over samples.

    Each client gives, for each observed set it belongs to, its (accuracy, number of samples) there.
    All samples of an observed set are seen by the same clients, so averaging over the clients of a
    set first equals averaging over the clients of each sample, if they have labels for the same
    samples of it. Returns the number of samples too.
    """
    observed_sets = {name for client in by_observed_set for name, (_, n) in client.items() if n}
    weighted = 0.0
    num_samples = 0
    for name in sorted(observed_sets):
        seen = [client[name] for client in by_observed_set if client.get(name, (0.0, 0))[1]]
        size = max(n for _, n in seen)
        weighted += size * sum(accuracy for accuracy, _ in seen) / len(seen)
        num_samples += size
    return (weighted / num_samples if num_samples else None), num_samples


def f1_over_clients(f1_by_client: Sequence[float | None]) -> float | None:
    """Average the clients' own F1 scores, each on the samples that it observes."""
    known = [value for value in f1_by_client if value is not None]
    return sum(known) / len(known) if known else None


def _mean(values: npt.NDArray[np.bool_] | Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
