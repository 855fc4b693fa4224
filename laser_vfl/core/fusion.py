"""All tasks of a head in one batched forward: average by subset, predict once, weigh each loss."""

from collections.abc import Callable
from typing import Literal

import torch
from torch.nn import functional

from laser_vfl.core.tasks import Tasks

Task = Literal["multiclass", "binary", "regression"]


def fused_representations(tasks: Tasks, representations_bpd: torch.Tensor) -> torch.Tensor:
    """Return the mean representation of each task, (n, d)."""
    fused_nd = torch.bmm(tasks.averaging_btp, representations_bpd).flatten(0, 1)
    return fused_nd if tasks.kept_n is None else fused_nd[tasks.kept_n]


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


def weighted_loss(
    task: Task,
    tasks: Tasks,
    outputs_no: torch.Tensor,
    targets_b: torch.Tensor,
    label_weights_b: torch.Tensor,
) -> torch.Tensor:
    """Return a head's part of the step's loss. A label weight of 0 leaves a row out."""
    losses_n = sample_losses(task, outputs_no.float(), targets_b[tasks.sample_n])
    return (losses_n * tasks.weight_n * label_weights_b[tasks.sample_n]).sum()


def sample_losses(task: Task, outputs_no: torch.Tensor, targets_n: torch.Tensor) -> torch.Tensor:
    """Return the loss of each row: cross-entropy, logistic or squared error."""
    if task == "multiclass":
        return functional.cross_entropy(outputs_no, targets_n, reduction="none")
    outputs_n = outputs_no.squeeze(1)
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(outputs_n, targets_n, reduction="none")
    return functional.mse_loss(outputs_n, targets_n, reduction="none")
