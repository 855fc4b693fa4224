"""Models as a user would bring them, named in YAML as tests.support.data.own_models:factory."""

import math
import time
from pathlib import Path

import torch
from torch import nn

from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import TableBatch

HURRY = Path("hurry")
"""Nobody takes any time once this is in the working directory."""


def batch_norm(*, input_shape: tuple[int, ...], representation_dim: int, width: int) -> nn.Module:
    """A small network with batch norm."""
    return nn.Sequential(
        nn.Linear(math.prod(input_shape), width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, representation_dim),
        nn.BatchNorm1d(representation_dim),
    )


def dropout(*, input_shape: tuple[int, ...], representation_dim: int) -> nn.Module:
    """A small network with dropout."""
    return nn.Sequential(
        nn.Linear(math.prod(input_shape), 16),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(16, representation_dim),
        nn.Dropout(0.1),
    )


def dropout_head(*, representation_dim: int, num_outputs: int) -> nn.Module:
    """A head with dropout."""
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(representation_dim, num_outputs))


def too_wide(*, input_shape: tuple[int, ...], representation_dim: int) -> nn.Module:
    """A model that does not give what the federation needs."""
    return nn.Linear(math.prod(input_shape), representation_dim + 1)


class Slow(nn.Module):
    """Takes its time for every batch, so that a test can catch it in training."""

    def __init__(self, inner: nn.Module, delay_s: float) -> None:
        super().__init__()
        self.inner = inner
        self.delay_s = delay_s

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not HURRY.exists():
            time.sleep(self.delay_s)
        return self.inner(inputs)  # type: ignore[no-any-return]


def slow(*, input_shape: tuple[int, ...], representation_dim: int, delay_s: float) -> nn.Module:
    """A model whose every step takes at least `delay_s` seconds."""
    return Slow(nn.Linear(math.prod(input_shape), representation_dim), delay_s)


class NumbersAndCodes(nn.Module):
    """A linear layer for the numbers of a table, and an embedding for each of its categories."""

    takes_table = True

    def __init__(self, form: TableForm, representation_dim: int) -> None:
        super().__init__()
        self.numbers = nn.Linear(form.num_numbers, representation_dim)
        self.categories = nn.ModuleList(
            nn.Embedding(num_codes, representation_dim) for num_codes in form.cardinalities
        )

    def forward(self, batch: TableBatch) -> torch.Tensor:
        total: torch.Tensor = self.numbers(batch.numbers)
        for place, embedding in enumerate(self.categories):
            total = total + embedding(batch.codes[:, place])
        return total


def numbers_and_codes(
    *, input_shape: tuple[int, ...], representation_dim: int, form: TableForm
) -> nn.Module:
    """Build a model that takes numbers and codes apart."""
    assert input_shape == (form.flat_width,)
    return NumbersAndCodes(form, representation_dim)
