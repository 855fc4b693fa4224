"""The multi-layer perceptron, for tabular blocks and for fusion."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers from each width to the next, ReLU between them."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise(widths):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def flat_mlp(input_shape: Sequence[int], hidden: Sequence[int], output: int) -> nn.Sequential:
    """An MLP on rows of any shape, flattened."""
    return nn.Sequential(nn.Flatten(), *mlp([math.prod(input_shape), *hidden, output]))
