"""PlugVFL: one head, to which missing representations are zeros; training drops parties."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from laser_vfl.core.fusion import Task
from laser_vfl.core.method import Answers, Masks, Rows, added_up
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan
from laser_vfl.core.randomness import Purpose, random_words
from laser_vfl.core.subsets import has
from laser_vfl.core.tasks import Tasks, one_task
from laser_vfl.methods.active_party import ActiveParty


class Plug(ActiveParty):
    """The head sees the sum of what is there, divided by the size of the roster."""

    def tasks(self, plan: Plan, place: Place) -> Tasks:
        """Predict each sample from the blocks that it has and that are not dropped in this step."""
        dropped = _dropped(plan.step, place)
        shifts = np.array(plan.blocks, dtype=np.uint64)
        present_bp = (plan.observed_b[:, None] >> shifts & np.uint64(1)).astype(bool)
        present_bp &= [not has(dropped, block) for block in plan.blocks]
        averaging_bp = (present_bp / place.num_clients).astype(np.float32)
        return one_task(plan, averaging_bp, place.settings)

    def predictions(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        place: Place,
        task: Task,
    ) -> torch.Tensor:
        """Divide by the size of the roster, whatever the size of the subset."""
        averaging_btp = (tasks.averaging_btp > 0) / place.num_clients
        tasks = replace(tasks, averaging_btp=averaging_btp)
        return self.outputs(fusion, tasks, representations_bpd)

    def fuse(self, own_nd: Rows, answers: Answers, place: Place) -> tuple[Rows, Masks]:
        """Add up what is there, and divide by the size of the roster."""
        total_nd, _, blocks = added_up(own_nd, answers, place)
        return total_nd / np.float32(place.num_clients), blocks


def _dropped(step: int, place: Place) -> int:
    """Return who is dropped in a step, by chance; the active party never is."""
    words = random_words(
        place.num_clients,
        seed=place.settings.seed,
        purpose=Purpose.DROPPED_PARTIES,
        moment=step,
    )
    chances = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    dropped = sum(
        1 << client
        for client, chance in enumerate(chances)
        if chance < place.settings.drop_probability
    )
    return dropped & ~place.heads
