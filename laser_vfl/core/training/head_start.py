"""Where a head starts that learns from randomised labels: at how frequent each true class is.

A head that starts elsewhere spends its first steps, in which it learns most, on finding that out.
Frequencies are counted among the labels that were told, and the noise is taken off them, so they
tell no more of a label than those.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.core.privacy.label_noise import LabelNoise, RandomisedResponse

Shares = npt.NDArray[np.float64]


def class_shares(
    noise: RandomisedResponse, targets_n: torch.Tensor, label_weights_n: torch.Tensor
) -> Shares:
    """Return an estimate of the weighted share of each true class, from noisy targets.

    It is unbiased until it is drawn towards equal shares, by as much as chance alone makes shares
    differ (James and Stein 1961). None is smaller than its standard error.
    """
    num, even = noise.num_levels, 1 / noise.num_levels
    weights_n = label_weights_n.double().numpy()
    if not weights_n.any():
        return np.full(num, even)
    told_c = np.bincount(targets_n.long().numpy(), weights_n, num) / weights_n.sum()
    apart = noise.keep - noise.lie
    found_c = (told_c - noise.lie) / apart
    variance_c = told_c * (1 - told_c) * (weights_n**2).sum() / (weights_n.sum() * apart) ** 2
    by_chance, spread = variance_c.sum(), ((found_c - even) ** 2).sum()
    if spread <= by_chance:
        return np.full(num, even)
    drawn_c = even + (1 - by_chance / spread) * (found_c - even)
    shares_c: Shares = np.maximum(drawn_c, np.sqrt(variance_c))
    shares_c /= shares_c.sum()
    return shares_c


def started(
    build: Callable[[], nn.Module],
    noise: LabelNoise | None,
    targets_n: torch.Tensor | None,
    label_weights_n: torch.Tensor | None,
) -> Callable[[], nn.Module]:
    """Return how to build a head that starts at the shares of classes, if labels are noisy ones.

    Its last layer has to be linear. Amounts are left where they start.
    """
    if not isinstance(noise, RandomisedResponse):
        return build
    assert targets_n is not None
    assert label_weights_n is not None
    shares_c = class_shares(noise, targets_n, label_weights_n)

    def built() -> nn.Module:
        head = build()
        start_at(head, shares_c)
        return head

    return built


@torch.no_grad()
def start_at(head: nn.Module, shares_c: Shares) -> None:
    """Have a head whose last layer is linear predict these shares where it knows nothing else."""
    last = list(head.modules())[-1]
    assert isinstance(last, nn.Linear)
    logits_c = torch.from_numpy(np.log(shares_c))
    if last.out_features == 1:
        last.bias.fill_(logits_c[1] - logits_c[0])
    else:
        last.bias.copy_(logits_c - logits_c.mean())
