"""Models that take their time, or die in a step.

In YAML they are tests.support.trials.fault_models:factory.
"""

import math
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from tests.support.data.own_models import HURRY

SLUGGISH = "this client takes its time"


class Paced(nn.Module):
    """Takes its time for every batch of training, so that a fault can hit it there."""

    def __init__(self, inner: nn.Module, delay_s: float) -> None:
        super().__init__()
        self.inner = inner
        self.delay_s = delay_s

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled() and not HURRY.exists():
            time.sleep(self.delay_s)
        return self.inner(inputs)  # type: ignore[no-any-return]


class Sluggish(Paced):
    """Says that it takes its time, once it has."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        began = time.monotonic()
        found = super().forward(inputs)
        if 0 < self.delay_s <= time.monotonic() - began:
            print(SLUGGISH, file=sys.stderr, flush=True)
        return found


class Mortal(Paced):
    """Kills its process once, at a given batch of training; a file says that it has."""

    def __init__(self, inner: nn.Module, delay_s: float, at: int, flag: str) -> None:
        super().__init__(inner, delay_s)
        self.at = at
        self.flag = Path(flag)
        self.num_calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled() and len(inputs) > 1:
            self.num_calls += 1
            if self.num_calls == self.at and not self.flag.exists():
                time.sleep(0.05)  # what was sent before gets out
                self.flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)


class Settled(Paced):
    """What it makes of a sample is the same at every step, so that it can be known in advance."""

    def __init__(self, inner: nn.Module, delay_s: float) -> None:
        super().__init__(inner, delay_s)
        self.inner.requires_grad_(False)
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) + 0.0 * self.nothing


def settled(*, input_shape: tuple[int, ...], representation_dim: int, delay_s: float) -> nn.Module:
    """A linear map that learns nothing."""
    return Settled(nn.Linear(math.prod(input_shape), representation_dim), delay_s)


def paced(
    *, input_shape: tuple[int, ...], representation_dim: int, delay_s: float, width: int = 8
) -> nn.Module:
    """A small network with batch norm whose every step takes at least `delay_s` seconds."""
    return Paced(_network(input_shape, representation_dim, width), delay_s)


def sluggish(
    *, input_shape: tuple[int, ...], representation_dim: int, delay_s: float, width: int = 8
) -> nn.Module:
    """The same, and it says so."""
    return Sluggish(_network(input_shape, representation_dim, width), delay_s)


def mortal(
    *,
    input_shape: tuple[int, ...],
    representation_dim: int,
    delay_s: float,
    at: int,
    flag: str,
    width: int = 8,
) -> nn.Module:
    """As `paced`, but it dies before it has a representation to send."""
    return Mortal(_network(input_shape, representation_dim, width), delay_s, at, flag)


def mortal_head(*, representation_dim: int, num_outputs: int, at: int, flag: str) -> nn.Module:
    """A head that dies: the representation is out, its gradients are not."""
    return Mortal(nn.Linear(representation_dim, num_outputs), 0.0, at, flag)


def _network(input_shape: tuple[int, ...], representation_dim: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(math.prod(input_shape), width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, representation_dim),
    )
