"""Standard VFL: one head, for samples that all clients hold. For any other sample it guesses."""

import numpy as np
import torch
from torch import nn

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Answers, Masks, Method, Prediction, Rows, added_up, chances
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.training.fusion import Task
from laser_vfl.core.training.task_sampling import Tasks, one_task
from laser_vfl.methods.active_party import ActivePartyBlocks


class AllBlocks(ActivePartyBlocks):
    """The active party uses samples that have every block."""

    def learns_from(self, observed: int, context: FederationContext) -> int:
        """Return all blocks, or none."""
        return observed if observed == context.everyone else 0

    def predicts_from(self, observed: int, context: FederationContext) -> int:
        """Return all blocks; the active party sees to the samples that lack one."""
        return observed if observed == context.everyone else context.heads & 1 << context.client

    def has_predictor(self, subset: int, context: FederationContext) -> bool:
        """Only for the whole roster."""
        return subset == context.everyone

    def used(self, observed: int, context: FederationContext) -> int:
        """Return the whole roster, or nothing: a guess."""
        return observed if observed == context.everyone else 0


class CompleteOrGuess(Prediction):
    """Predicts complete samples, and guesses all others."""

    def fuse(
        self, own_nd: Rows, answers: Answers, context: FederationContext
    ) -> tuple[Rows, Masks]:
        """Average complete rows; one that lacks a block is NaN, and says that it used none."""
        total_nd, num_blocks, blocks = added_up(own_nd, answers, context)
        lacking = blocks != np.uint64(context.everyone)
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


class Standard(Method):
    """Trained on fully observed samples only."""

    blocks = AllBlocks()
    prediction = CompleteOrGuess()

    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Predict each sample from all blocks."""
        share = np.float32(1 / context.num_clients)
        averaging_bp = np.full((len(plan.rows), len(plan.blocks)), share)
        return one_task(plan, averaging_bp, context.settings)
