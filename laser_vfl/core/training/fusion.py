"""All tasks of a head in one batched forward: average by subset, predict once, weigh each loss."""

from typing import Literal

import torch
from torch.nn import functional

from laser_vfl.core.privacy.label_noise import LabelNoise
from laser_vfl.core.training.noisy_label_loss import noisy_label_losses
from laser_vfl.core.training.task_sampling import Tasks

Task = Literal["multiclass", "binary", "regression"]


def fused_representations(tasks: Tasks, representations_bpd: torch.Tensor) -> torch.Tensor:
    """Return the mean representation of each task, (n, d)."""
    fused_nd = torch.bmm(tasks.averaging_btp, representations_bpd).flatten(0, 1)
    return fused_nd if tasks.kept_n is None else fused_nd[tasks.kept_n]


def weighted_loss(
    task: Task,
    tasks: Tasks,
    outputs_no: torch.Tensor,
    targets_b: torch.Tensor,
    label_weights_b: torch.Tensor,
    label_noise: LabelNoise | None = None,
) -> torch.Tensor:
    """Return a head's part of the step's loss. A label weight of 0 leaves a row out."""
    losses_n = sample_losses(task, outputs_no.float(), targets_b[tasks.sample_n], label_noise)
    return (losses_n * tasks.weight_n * label_weights_b[tasks.sample_n]).sum()


def sample_losses(
    task: Task,
    outputs_no: torch.Tensor,
    targets_n: torch.Tensor,
    label_noise: LabelNoise | None = None,
) -> torch.Tensor:
    """Return the loss of each row: cross-entropy, logistic or squared error.

    Where labels were randomised, it is corrected for that.
    """
    if label_noise is not None:
        return noisy_label_losses(label_noise, outputs_no, targets_n)
    if task == "multiclass":
        return functional.cross_entropy(outputs_no, targets_n, reduction="none")
    outputs_n = outputs_no.squeeze(1)
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(outputs_n, targets_n, reduction="none")
    return functional.mse_loss(outputs_n, targets_n, reduction="none")
