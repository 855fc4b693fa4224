"""A model for tables: embeddings of numbers and categories, then an MLP with dropout.

Numbers are embedded piecewise linearly, as in "On Embeddings for Numerical Features in Tabular Deep
Learning" (Gorishniy et al., 2022): a tree can cut a number anywhere, an MLP finds that hard.
"""

import math
from statistics import NormalDist
from typing import cast

import torch
from torch import Tensor, nn

from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import TableBatch

STANDARD_EDGES = tuple(NormalDist().inv_cdf(i / 17) for i in range(1, 17))
"""Edges of bins for numbers of which nothing is known but that they were standardised."""

NARROWEST = 1e-6
"""Of a bin, for numbers that are scaled; dividing by less could be infinite."""

UNUSUAL_CODES = 2
"""The first codes of a category stand for unseen and for missing values."""


class TabularModel(nn.Module):
    """Turns numbers and codes into a representation. `width` is that of the hidden layers.

    Each number has `embedding` values of its own beside itself, and so has each category.
    """

    takes_table = True

    def __init__(
        self,
        form: TableForm,
        representation_dim: int,
        *,
        width: int,
        layers: int,
        embedding: int,
        dropout: float,
    ) -> None:
        super().__init__()
        num_columns = form.num_numbers + len(form.cardinalities)
        self.numbers = PiecewiseLinear(_edges(form), embedding)
        self.categories = Categories(form.cardinalities, embedding)
        parts: list[nn.Module] = []
        inputs = form.num_numbers + num_columns * embedding
        for _ in range(layers):
            parts += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        self.layers = nn.Sequential(*parts, nn.Linear(inputs, representation_dim))

    def forward(self, rows: TableBatch) -> Tensor:
        embedded = [rows.numbers, self.numbers(rows.numbers), self.categories(rows.codes)]
        return cast(Tensor, self.layers(torch.cat(embedded, dim=1)))


class PiecewiseLinear(nn.Module):
    """Embeds each number by a function of its own that is linear between quantiles.

    A bin is empty for a number below it, full for a number above it, and filled in part by one
    within it; the embedding is a linear map of how full a number's bins are.
    """

    def __init__(self, edges: tuple[tuple[float, ...], ...], embedding: int) -> None:
        super().__init__()
        num_bins = max((len(own) - 1 for own in edges), default=0)
        start_nt = torch.zeros(len(edges), max(num_bins, 1))
        inverse_nt = torch.zeros_like(start_nt)  # a bin that a number does not have stays empty
        for number, own in enumerate(edges):
            if len(own) > 1:
                ends = torch.tensor(own, dtype=torch.float64)
                start_nt[number, : len(own) - 1] = ends[:-1]
                inverse_nt[number, : len(own) - 1] = 1 / ends.diff().clamp(min=NARROWEST)
        # Not part of the state: they follow from the encoding, which is kept beside the model.
        self.register_buffer("start_nt", start_nt, persistent=False)
        self.register_buffer("inverse_nt", inverse_nt, persistent=False)
        bound = 1 / math.sqrt(max(num_bins, 1))
        self.weight_nte = nn.Parameter(
            torch.empty(*start_nt.shape, embedding).uniform_(-bound, bound)
        )
        self.bias_ne = nn.Parameter(torch.zeros(len(edges), embedding))

    def forward(self, numbers_bn: Tensor) -> Tensor:
        """Return the embeddings of all numbers, side by side."""
        inverse_nt, start_nt = cast(Tensor, self.inverse_nt), cast(Tensor, self.start_nt)
        filled_bnt = ((numbers_bn[:, :, None] - start_nt) * inverse_nt).clamp(0, 1)
        embedded_nbe = torch.bmm(filled_bnt.transpose(0, 1), self.weight_nte)
        return (embedded_nbe.transpose(0, 1) + self.bias_ne).flatten(1)


class Categories(nn.Module):
    """Embeds the code of each category by a table of its own; all are one matrix.

    Codes for unseen and missing values start as zeros, the mean of all others: training may have
    none of them.
    """

    def __init__(self, cardinalities: tuple[int, ...], embedding: int) -> None:
        super().__init__()
        first_c = torch.tensor([0, *cardinalities], dtype=torch.int64).cumsum(0)[:-1]
        self.register_buffer("first_c", first_c, persistent=False)
        weights = torch.randn(sum(cardinalities), embedding) * 0.3
        for first, num_codes in zip(first_c.tolist(), cardinalities, strict=True):
            weights[first : first + min(num_codes, UNUSUAL_CODES)] = 0
        self.weight = nn.Parameter(weights)

    def forward(self, codes_bc: Tensor) -> Tensor:
        """Return the embeddings of all categories, side by side."""
        first_c = cast(Tensor, self.first_c)
        if not len(first_c):
            return self.weight.new_zeros((len(codes_bc), 0))
        return nn.functional.embedding(codes_bc + first_c, self.weight).flatten(1)


def _edges(form: TableForm) -> tuple[tuple[float, ...], ...]:
    return form.edges or (STANDARD_EDGES,) * form.num_numbers
