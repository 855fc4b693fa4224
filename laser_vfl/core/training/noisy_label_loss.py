"""Losses on labels that were randomised in a known way: the head learns to predict the true ones.

A head predicts a true label. What the noise makes of that prediction is known, and so is how likely
it makes the label that was told: the loss is minus the logarithm of that (forward correction,
Patrini et al. 2017).
"""

import math

import torch
from torch.nn import functional

from laser_vfl.core.privacy.label_noise import BOUNDS_APART, LabelNoise, RandomisedResponse


def noisy_label_losses(
    noise: LabelNoise, outputs_no: torch.Tensor, targets_n: torch.Tensor
) -> torch.Tensor:
    """Return the loss of each row, given noisy targets."""
    if isinstance(noise, RandomisedResponse):
        told_n = _log_likelihoods(outputs_no, targets_n)
        # The label is told by a lie, whatever is true, or else because it is true.
        by_lie_n = torch.full_like(told_n, math.log(noise.lie))
        return -torch.logaddexp(by_lie_n, told_n + math.log(noise.keep - noise.lie))
    # Laplace noise makes the distance as likely as e^-(distance/scale). Twice the scale squared
    # times that gives the curvature of a squared error, and so the steps of the same optimiser.
    scale = BOUNDS_APART / noise.epsilon
    return 2 * scale * (outputs_no.squeeze(1) - targets_n).abs()


def _log_likelihoods(outputs_no: torch.Tensor, targets_n: torch.Tensor) -> torch.Tensor:
    """Return how likely the head takes each target for the true label, as a logarithm."""
    if outputs_no.shape[1] > 1:
        return -functional.cross_entropy(outputs_no, targets_n, reduction="none")
    log_odds_n = outputs_no.squeeze(1)
    return functional.logsigmoid(torch.where(targets_n > 0, log_odds_n, -log_odds_n))
