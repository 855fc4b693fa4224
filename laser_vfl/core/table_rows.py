"""Rows of a table as models take them: numbers and codes apart, or flat with categories one-hot.

Rows are kept as `TableForm` says. They are split, or made flat, a batch at a time: by a hook on the
model, so that its parameters have the names of the model alone.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from laser_vfl.core.table_form import TableForm


@dataclass(frozen=True)
class TableBatch:
    """Some rows of a table, as a model with `takes_table = True` gets them."""

    numbers: torch.Tensor
    """(b, numbers) float32: scaled, finite."""
    codes: torch.Tensor
    """(b, categories) int64: each below its cardinality."""

    def __len__(self) -> int:
        return len(self.numbers)


def split_rows(rows: torch.Tensor, form: TableForm) -> TableBatch:
    """Return the numbers and the codes of rows in memory."""
    return TableBatch(rows[:, : form.num_numbers], rows[:, form.num_numbers :].long())


def flat_rows(rows: torch.Tensor, form: TableForm | None) -> torch.Tensor:
    """Return rows with one column for each code, in the order of the table.

    Rows without categories, or of several dimensions, are what they were.
    """
    if form is None or not form.cardinalities:
        return rows
    return _Flattening(form)(rows)


def reads_block(model: nn.Module, form: TableForm | None) -> nn.Module:
    """Have a model take rows as they are in memory; return it.

    A model whose attribute `takes_table` is true gets a `TableBatch`, every other one flat rows.
    """
    if form is None:
        return model
    if getattr(model, "takes_table", False):
        model.register_forward_pre_hook(_Split(form))
    elif form.cardinalities:
        model.register_forward_pre_hook(_Flat(form))
    return model


class _Flattening:
    """Where the values of a row go when categories become one-hot."""

    def __init__(self, form: TableForm) -> None:
        self._form = form
        number_at: list[int] = []
        first_at: list[int] = []
        start = 0
        for part in form.order:
            (first_at if part else number_at).append(start)
            start += part or 1
        self._number_at = torch.tensor(number_at, dtype=torch.int64)
        self._first_at = torch.tensor(first_at, dtype=torch.int64)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        batch = split_rows(rows, self._form)
        flat = rows.new_zeros((len(rows), self._form.flat_width))
        flat[:, self._number_at.to(rows.device)] = batch.numbers
        return flat.scatter_(1, batch.codes + self._first_at.to(rows.device), 1.0)


class _Flat:
    """A hook before the forward pass of a model that wants one float tensor."""

    def __init__(self, form: TableForm) -> None:
        self._flattened = _Flattening(form)

    def __call__(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._flattened(given[0]), *given[1:])


class _Split:
    """A hook before the forward pass of a model that takes numbers and codes apart."""

    def __init__(self, form: TableForm) -> None:
        self._form = form

    def __call__(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (split_rows(given[0], self._form), *given[1:])
