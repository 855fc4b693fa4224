"""The loss of a head as the paper writes it: average, predict, weigh."""

from collections.abc import Callable

import torch

from laser_vfl.core.training.fusion import Task, fused_representations, weighted_loss
from laser_vfl.core.training.task_sampling import Tasks


def head_loss(
    fusion: Callable[[torch.Tensor], torch.Tensor],
    task: Task,
    tasks: Tasks,
    representations_bpd: torch.Tensor,
    targets_b: torch.Tensor,
    label_weights_b: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of a head that predicts from averages."""
    outputs_no = fusion(fused_representations(tasks, representations_bpd))
    return weighted_loss(task, tasks, outputs_no, targets_b, label_weights_b)
