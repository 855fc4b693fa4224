"""How well every subset of blocks predicts, from one client's head and its test rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import Group
from laser_vfl.core.evaluation.metrics import best_constant, score
from laser_vfl.core.evaluation.shapley import MAX_ENUMERATED_BLOCKS, Order, prefixes, random_orders
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import guesses
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import clients_in, mask_of, subset_name, subsets_containing
from laser_vfl.core.training.learner import Learner
from laser_vfl.core.training.task_sampling import all_tasks


def scored_subsets(learner: Learner, groups: Sequence[Group]) -> list[int]:
    """Return the subsets of a test table that a head is scored on."""
    context, blocks = learner.context, learner.method.blocks
    orders = orders_to_score(context, groups)
    return subsets_to_score(
        context.client, groups, orders, lambda observed: blocks.used(observed, context)
    )


def subsets_to_score(
    client: int,
    groups: Sequence[Group],
    orders: Sequence[Order] = (),
    used: Callable[[int], int] = lambda observed: observed,
) -> list[int]:
    """Return the subsets a client is scored on: all that can occur, while they are few.

    Above ten blocks there are too many; then the client alone remains, what is `used` of each
    observed set, and what the client would have along each of the orders in which blocks are added.
    """
    mine = [g.observed for g in groups if g.observed >> client & 1]
    own, union = 1 << client, _occurring(client, groups)
    if union.bit_count() <= MAX_ENUMERATED_BLOCKS:
        subsets = subsets_containing(client, union) if mine else []
        return [subset for subset in subsets if any(not subset & ~mask for mask in mine)]
    along = {subset | own for order in orders for subset in prefixes(order, union)}
    seen = {subset for subset in along if any(not subset & ~mask for mask in mine)}
    kept = {own, *seen, *filter(None, map(used, mine))}
    return sorted(kept, key=lambda mask: (mask.bit_count(), mask))


def orders_to_score(context: FederationContext, groups: Sequence[Group]) -> list[tuple[int, ...]]:
    """Return the orders that stand for all subsets; none while the subsets are enumerated."""
    if _occurring(context.client, groups).bit_count() <= MAX_ENUMERATED_BLOCKS:
        return []
    return random_orders(context.num_clients, seed=context.settings.seed)


def _occurring(client: int, groups: Sequence[Group]) -> int:
    """Return the blocks that occur in the client's rows."""
    return mask_of(i for g in groups if g.observed >> client & 1 for i in clients_in(g.observed))


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
        context, blocks = learner.context, learner.method.blocks
        self._subsets = [subset for subset in subsets if blocks.has_predictor(subset, context)]
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
        context = self._learner.context
        for mask, rows in sets.items():
            used = self._learner.method.blocks.used(mask, context)
            if not used:
                overall[rows] = guessed(self._learner, self._num_outputs, len(rows))[rows]
                continue
            if used not in self._subsets:  # a set that only a lost member made
                used = 1 << context.client
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
            "constant": self._constant(everyone),
            "fully_observed": self._fully_observed(roster),
        }

    def _fully_observed(self, roster: Sequence[str]) -> dict[str, Any] | None:
        """Score all subsets on the same rows, those with every block that ever occurs."""
        every = int(np.bitwise_or.reduce(self._observed)) if len(self._observed) else 0
        rows = self._observed == every
        if not every or not (rows & self._labelled).any():
            return None
        return {
            "blocks": subset_name(every, roster),
            "num_samples": int(np.count_nonzero(rows & self._labelled)),
            "constant": self._constant(rows),
            "by_subset": {
                subset_name(mask, roster): self._score(values, rows, counted=False)
                for mask, values in zip(self._subsets, self._predictions, strict=True)
                if not mask & ~every
            },
        }

    def _constant(self, rows: npt.NDArray[np.bool_]) -> dict[str, Any]:
        targets = self._targets[rows & self._labelled].astype(np.float64) * self._target_std
        return dict(best_constant(self._learner.task, targets))

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
    chances = guesses(num, num_outputs, learner.context, counter=0) - 0.5
    return decide(learner.task, torch.from_numpy(chances)).float().numpy()


def decide(task: str, outputs_no: torch.Tensor) -> torch.Tensor:
    """Return class numbers (multiclass), log-odds (binary) or values (regression)."""
    return outputs_no.argmax(dim=1).float() if task == "multiclass" else outputs_no.squeeze(1)
