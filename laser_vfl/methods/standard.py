"""Standard VFL: one head, for samples that all clients hold. For any other sample it guesses."""

import numpy as np
import torch
from torch import nn

from laser_vfl.core.fusion import Task
from laser_vfl.core.method import Answers, Masks, Rows, added_up, chances
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan
from laser_vfl.core.tasks import Tasks, one_task
from laser_vfl.methods.active_party import ActiveParty


class Standard(ActiveParty):
    """Trained on fully observed samples only."""

    def learns_from(self, observed: int, place: Place) -> int:
        """Return all blocks, or none."""
        return observed if observed == place.everyone else 0

    def predicts_from(self, observed: int, place: Place) -> int:
        """Return all blocks; the active party sees to the samples that lack one."""
        return observed if observed == place.everyone else place.heads & 1 << place.client

    def tasks(self, plan: Plan, place: Place) -> Tasks:
        """Predict each sample from all blocks."""
        share = np.float32(1 / place.num_clients)
        averaging_bp = np.full((len(plan.rows), len(plan.blocks)), share)
        return one_task(plan, averaging_bp, place.settings)

    def scores(self, subset: int, place: Place) -> bool:
        """The whole roster alone."""
        return subset == place.everyone

    def used(self, observed: int, place: Place) -> int:
        """Return the whole roster, or nothing: a guess."""
        return observed if observed == place.everyone else 0

    def fuse(self, own_nd: Rows, answers: Answers, place: Place) -> tuple[Rows, Masks]:
        """Average complete rows; one that lacks a block is NaN, and says that it used none."""
        total_nd, num_blocks, blocks = added_up(own_nd, answers, place)
        lacking = blocks != np.uint64(place.everyone)
        total_nd[lacking], blocks[lacking] = np.nan, 0
        return total_nd / num_blocks, blocks

    def answers(
        self,
        fusion: nn.Module,
        fused_nd: torch.Tensor,
        task: Task,
        chance: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Predict, and guess where there is nothing to predict from."""
        outputs_no: torch.Tensor = fusion(fused_nd.nan_to_num())
        lacking_n1 = fused_nd[:, :1].isnan()
        guess_no = torch.zeros_like(outputs_no)
        if task != "regression":
            guess_no = chances(outputs_no, chance)
        return torch.where(lacking_n1, guess_no, outputs_no)
