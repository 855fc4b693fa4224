"""Sample the tasks of a head: one subset of each size for each sample, with unbiased weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import Group
from laser_vfl.core.randomness import RandomStream, random_words
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.settings import AlgorithmSettings
from laser_vfl.core.subsets import has


@dataclass(frozen=True)
class Tasks:
    """The (sample, subset) pairs a head predicts in one step.

    `averaging_btp @ representations_bpd` is the mean over each subset's blocks. A sample with fewer
    blocks than others has fewer tasks: `kept_n` picks the real ones of the flattened (b, t), or is
    None when all are real. `sample_n` names each task's sample and `weight_n` its weight.
    """

    averaging_btp: torch.Tensor
    kept_n: torch.Tensor | None
    sample_n: torch.Tensor
    weight_n: torch.Tensor
    subset_t: tuple[int, ...] = ()
    """The subset of each task, where all samples have the same ones."""

    def to(self, device: torch.device) -> "Tasks":
        """Return the same tasks on a device."""
        return Tasks(
            averaging_btp=self.averaging_btp.to(device),
            kept_n=None if self.kept_n is None else self.kept_n.to(device),
            sample_n=self.sample_n.to(device),
            weight_n=self.weight_n.to(device),
            subset_t=self.subset_t,
        )


def sample_tasks(
    plan: Plan,
    settings: AlgorithmSettings,
    *,
    num_clients: int,
    heads: int,
    groups: Sequence[Group] = (),
) -> Tasks:
    """Draw a head's tasks: for each sample with m blocks, one subset of each size 1..m.

    `groups` tell how often a subset is observed, if tasks are weighted by that.
    """
    num_rows, num_blocks = len(plan.observed_b), len(plan.blocks)
    per_batch = settings.task_sampling == "per_batch"
    alike = per_batch and bool((plan.observed_b == plan.observed_b[0]).all())
    present_bp = _present(plan.observed_b[:1] if alike else plan.observed_b, plan.blocks)
    num_present_b = present_bp.sum(axis=1)
    num_tasks = int(num_present_b.max())
    rows_drawn = 1 if per_batch else num_rows
    words = random_words(
        rows_drawn * num_tasks * num_blocks,
        seed=settings.seed,
        stream=RandomStream.TASKS,
        counter=plan.step,
        client=plan.client,
    ).reshape(rows_drawn, num_tasks, num_blocks)
    member_btp = _lowest_ranked(words, present_bp, own=plan.blocks.index(plan.client))
    has_head_p = np.array([has(heads, block) for block in plan.blocks])
    weight_bt = _weights(member_btp, num_present_b, has_head_p, settings, num_clients)
    if settings.loss_weighting == "availability":
        weight_bt *= _rarity(member_btp, plan.blocks, groups, settings.max_loss_weight)
    tasks = _tasks(member_btp, num_present_b, weight_bt / divisor(plan, settings))
    return _for_each(tasks, num_rows) if alike else tasks


def divisor(plan: Plan, settings: AlgorithmSettings) -> int:
    """Return what a step's loss is divided by."""
    return settings.batch_size if settings.loss_divisor == "batch_size" else plan.num_samples


def one_task(
    plan: Plan, averaging_bp: npt.NDArray[np.float32], settings: AlgorithmSettings
) -> Tasks:
    """Return one task for each sample, all of the same weight."""
    num_rows = len(plan.rows)
    return Tasks(
        averaging_btp=torch.from_numpy(averaging_bp[:, None, :]),
        kept_n=None,
        sample_n=torch.arange(num_rows),
        weight_n=torch.full((num_rows,), 1 / divisor(plan, settings)),
    )


def num_observing(groups: Sequence[Group], subset: int) -> int:
    """Return how many samples have at least these blocks."""
    return sum(group.size for group in groups if not subset & ~group.observed)


def _present(observed_b: npt.NDArray[np.uint64], blocks: Sequence[int]) -> npt.NDArray[np.bool_]:
    shifts = np.array(blocks, dtype=np.uint64)
    return (observed_b[:, None] >> shifts & np.uint64(1)).astype(bool)


def _for_each(tasks: Tasks, num_rows: int) -> Tasks:
    """Return the tasks of one sample for each of so many samples that have the same blocks."""
    num_tasks = len(tasks.weight_n)
    return Tasks(
        averaging_btp=tasks.averaging_btp.expand(num_rows, -1, -1),
        kept_n=None,
        sample_n=torch.arange(num_rows)[:, None].expand(-1, num_tasks).flatten(),
        weight_n=tasks.weight_n.expand(num_rows, -1).flatten(),
    )


def _lowest_ranked(
    words_btp: npt.NDArray[np.uint64], present_bp: npt.NDArray[np.bool_], own: int
) -> npt.NDArray[np.bool_]:
    """Task t takes the t + 1 present blocks with the smallest words, the own block first.

    Ranking independent words gives every subset of a size the same chance.
    """
    ranked = np.where(present_bp[:, None, :], words_btp >> np.uint64(1), np.uint64(2**64 - 1))
    ranked[:, :, own] = 0
    rank = ranked.argsort(axis=2, kind="stable").argsort(axis=2, kind="stable")
    sizes_t = np.arange(1, words_btp.shape[1] + 1)
    return (rank < sizes_t[None, :, None]) & present_bp[:, None, :]


def _weights(
    member_btp: npt.NDArray[np.bool_],
    num_present_b: npt.NDArray[np.int64],
    has_head_p: npt.NDArray[np.bool_],
    settings: AlgorithmSettings,
    num_clients: int,
) -> npt.NDArray[np.float64]:
    """Return the weight of each task in the sum over all subsets."""
    choices = _choices(member_btp.shape[1])
    counted = member_btp & has_head_p if settings.subset_weight == "heads" else member_btp
    weight_bt: npt.NDArray[np.float64] = choices[num_present_b] / counted.sum(axis=2)
    if settings.loss_scale == "normalized":
        weight_bt *= num_clients / (2**num_clients - 1)
    return weight_bt


@lru_cache(64)
def _choices(num_tasks: int) -> npt.NDArray[np.float64]:
    """Return, by m and i - 1, of how many subsets of i of m blocks one was drawn."""
    sizes_t = range(1, num_tasks + 1)
    return np.array(
        [[comb(m - 1, i - 1) if m else 0 for i in sizes_t] for m in range(num_tasks + 1)],
        dtype=np.float64,
    )


def _rarity(
    member_btp: npt.NDArray[np.bool_],
    blocks: Sequence[int],
    groups: Sequence[Group],
    at_most: float,
) -> npt.NDArray[np.float64]:
    """Return N / N_I for the subset I of each task, `at_most` where it is more."""
    bits = np.array([1 << block for block in blocks], dtype=np.uint64)
    masks, where = np.unique(member_btp @ bits, return_inverse=True)
    num_samples = sum(group.size for group in groups)
    rarity = [
        min(at_most, num_samples / max(num_observing(groups, int(mask)), 1)) for mask in masks
    ]
    return np.array(rarity)[where.reshape(member_btp.shape[:2])]


def _tasks(
    member_btp: npt.NDArray[np.bool_],
    num_present_b: npt.NDArray[np.int64],
    weight_bt: npt.NDArray[np.float64],
) -> Tasks:
    num_rows, num_tasks, _ = member_btp.shape
    sizes_t = np.arange(1, num_tasks + 1)
    averaging_btp = member_btp * (1 / sizes_t).astype(np.float32)[:, None]
    kept_n, sample_n = None, np.arange(num_rows).repeat(num_tasks)
    weight_n = weight_bt.astype(np.float32).ravel()
    if num_present_b.min() < num_tasks:
        kept_n = np.flatnonzero(sizes_t <= num_present_b[:, None])
        sample_n, weight_n = sample_n[kept_n], weight_n[kept_n]
    return Tasks(
        averaging_btp=torch.from_numpy(averaging_btp),
        kept_n=None if kept_n is None else torch.from_numpy(kept_n),
        sample_n=torch.from_numpy(sample_n),
        weight_n=torch.from_numpy(weight_n),
    )


def all_tasks(plan: Plan, subsets: Sequence[int]) -> tuple[Tasks, npt.NDArray[np.int64]]:
    """Return every (sample, subset) pair whose blocks the sample has, unweighted.

    The second value gives for each task the index of its subset in `subsets`.
    """
    shifts = np.array(plan.blocks, dtype=np.uint64)
    wanted = np.array(subsets, dtype=np.uint64)
    member_tp = (wanted[:, None] >> shifts & np.uint64(1)).astype(np.float32)
    real_bt = (wanted[None, :] & ~plan.observed_b[:, None]) == 0
    averaging_tp = member_tp / np.maximum(member_tp.sum(axis=1, keepdims=True), 1)
    averaging_btp = np.broadcast_to(averaging_tp, (len(real_bt), *averaging_tp.shape)).copy()
    sample_n, subset_n = np.nonzero(real_bt)
    tasks = Tasks(
        averaging_btp=torch.from_numpy(averaging_btp),
        kept_n=torch.from_numpy(np.flatnonzero(real_bt)),
        sample_n=torch.from_numpy(sample_n),
        weight_n=torch.ones(len(sample_n)),
        subset_t=tuple(subsets),
    )
    return tasks, subset_n
