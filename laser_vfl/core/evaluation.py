"""How well every subset of blocks predicts, from one client's head and its test rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import Group
from laser_vfl.core.learner import Learner
from laser_vfl.core.method import guesses
from laser_vfl.core.metrics import score
from laser_vfl.core.plan import Plan
from laser_vfl.core.subsets import clients_in, mask_of, subset_name, subsets_containing
from laser_vfl.core.tasks import all_tasks

MAX_ENUMERATED_BLOCKS = 10


def subsets_to_score(
    client: int, groups: Sequence[Group], used: Callable[[int], int] = lambda observed: observed
) -> list[int]:
    """Return the subsets a client is scored on: all that can occur, while they are few.

    Above ten blocks there are too many; then the client alone remains, and what is `used` of each
    observed set.
    """
    mine = [g.observed for g in groups if g.observed >> client & 1]
    union = mask_of(i for mask in mine for i in clients_in(mask))
    if union.bit_count() <= MAX_ENUMERATED_BLOCKS:
        subsets = subsets_containing(client, union) if mine else []
        return [subset for subset in subsets if any(not subset & ~mask for mask in mine)]
    kept = {1 << client, *filter(None, map(used, mine))}
    return sorted(kept, key=lambda mask: (mask.bit_count(), mask))


class Evaluation:
    """Collects predictions batch by batch and turns them into scores."""

    def __init__(
        self,
        learner: Learner,
        subsets: Sequence[int],
        targets: npt.NDArray[np.float64],
        labelled: npt.NDArray[np.bool_],
        *,
        target_std: float = 1.0,
    ) -> None:
        self._num_outputs = 1
        self._learner = learner
        place, method = learner.place, learner.method
        self._subsets = [subset for subset in subsets if method.scores(subset, place)]
        self._targets = targets
        self._labelled = labelled
        self._target_std = target_std
        self._observed = np.zeros(len(targets), dtype=np.uint64)
        self._predictions = np.zeros((len(self._subsets), len(targets)), dtype=np.float32)
        self._predicted = np.zeros((len(self._subsets), len(targets)), dtype=bool)

    def add(self, plan: Plan, representations_bpd: torch.Tensor) -> None:
        """Predict the rows of one batch with every subset of the blocks they have."""
        tasks, subset_n = all_tasks(plan, self._subsets)
        outputs_no = self._learner.predict(
            plan, tasks.to(self._learner.device), representations_bpd
        )
        self._num_outputs = outputs_no.shape[1]
        values_n = decide(self._learner.task, outputs_no).cpu().numpy()
        rows_n = plan.rows[tasks.sample_n.numpy()]
        self._predictions[subset_n, rows_n] = values_n
        self._predicted[subset_n, rows_n] = True
        self._observed[plan.rows] = plan.observed_b

    def scores(self, roster: Sequence[str]) -> dict[str, Any]:
        """Return the content of scores.json."""
        overall = np.zeros(len(self._targets), dtype=np.float32)
        sets = {int(mask): self._observed == mask for mask in np.unique(self._observed) if mask}
        place = self._learner.place
        for mask, rows in sets.items():
            used = self._learner.method.used(mask, place)
            if not used:
                overall[rows] = guessed(self._learner, self._num_outputs, len(rows))[rows]
                continue
            if used not in self._subsets:  # a set that only a lost member made
                used = 1 << place.client
            overall[rows] = self._predictions[self._subsets.index(used), rows]
        num_blocks = np.bitwise_count(self._observed)
        everyone = num_blocks > 0
        return {
            "task": self._learner.task,
            "num_samples": int(np.count_nonzero(everyone & self._labelled)),
            "overall": self._score(overall, everyone, counted=False),
            "by_num_blocks": {
                str(num): self._score(overall, num_blocks == num)
                for num in np.unique(num_blocks[everyone])
            },
            "by_subset": {
                subset_name(mask, roster): self._score(values, rows)
                for mask, values, rows in zip(
                    self._subsets, self._predictions, self._predicted, strict=True
                )
            },
            "by_observed_set": {
                subset_name(mask, roster): self._score(overall, rows) for mask, rows in sets.items()
            },
        }

    def _score(
        self, predictions: npt.NDArray[Any], rows: npt.NDArray[np.bool_], *, counted: bool = True
    ) -> dict[str, Any]:
        rows = rows & self._labelled
        scale = self._target_std
        scores = score(
            self._learner.task,
            predictions[rows].astype(np.float64) * scale,
            self._targets[rows].astype(np.float64) * scale,
        )
        return {**scores, "num_samples": int(np.count_nonzero(rows))} if counted else dict(scores)


def guessed(learner: Learner, num_outputs: int, num: int) -> npt.NDArray[np.float32]:
    """Return decisions at random for samples that a method has no predictor for."""
    if learner.task == "regression":
        return np.zeros(num, dtype=np.float32)
    chances = guesses(num, num_outputs, learner.place, moment=0) - 0.5
    return decide(learner.task, torch.from_numpy(chances)).float().numpy()


def decide(task: str, outputs_no: torch.Tensor) -> torch.Tensor:
    """Return class numbers (multiclass), log-odds (binary) or values (regression)."""
    return outputs_no.argmax(dim=1).float() if task == "multiclass" else outputs_no.squeeze(1)
