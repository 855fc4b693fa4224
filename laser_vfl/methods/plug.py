"""PlugVFL: one head, to which missing representations are zeros; training drops parties."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Answers, Masks, Method, Prediction, Rows, added_up
from laser_vfl.core.randomness import RandomStream, random_words
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import has
from laser_vfl.core.training.fusion import Task
from laser_vfl.core.training.task_sampling import Tasks, one_task
from laser_vfl.methods.active_party import ActivePartyBlocks


class RosterAverage(Prediction):
    """The head sees the sum of what is there, divided by the size of the roster."""

    def evaluate(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        context: FederationContext,
        task: Task,
    ) -> torch.Tensor:
        """Divide by the size of the roster, whatever the size of the subset."""
        averaging_btp = (tasks.averaging_btp > 0) / context.num_clients
        tasks = replace(tasks, averaging_btp=averaging_btp)
        return self.outputs(fusion, tasks, representations_bpd)

    def fuse(
        self, own_nd: Rows, answers: Answers, context: FederationContext
    ) -> tuple[Rows, Masks]:
        """Add up what is there, and divide by the size of the roster."""
        total_nd, _, blocks = added_up(own_nd, answers, context)
        return total_nd / np.float32(context.num_clients), blocks


class Plug(Method):
    """Trains one head, and drops the representations of random parties while it does."""

    blocks = ActivePartyBlocks()
    prediction = RosterAverage()

    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Predict each sample from the blocks that it has and that are not dropped in this step."""
        dropped = _dropped(plan.step, context)
        shifts = np.array(plan.blocks, dtype=np.uint64)
        present_bp = (plan.observed_b[:, None] >> shifts & np.uint64(1)).astype(bool)
        present_bp &= [not has(dropped, block) for block in plan.blocks]
        averaging_bp = (present_bp / context.num_clients).astype(np.float32)
        return one_task(plan, averaging_bp, context.settings)


def _dropped(step: int, context: FederationContext) -> int:
    """Return the clients that a step drops at random; the active party never is one."""
    words = random_words(
        context.num_clients,
        seed=context.settings.seed,
        stream=RandomStream.DROPPED_PARTIES,
        counter=step,
    )
    chances = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    dropped = sum(
        1 << client
        for client, chance in enumerate(chances)
        if chance < context.settings.drop_probability
    )
    return dropped & ~context.heads
