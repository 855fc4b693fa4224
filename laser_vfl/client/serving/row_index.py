"""The rows that a client can answer for: found by blinded id, ready for its model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.tables.digest_index import DigestIndex, Digests
from laser_vfl.client.tables.table_listing import People
from laser_vfl.core.alignment import DIGEST_BYTES

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rowset:
    """Some rows: their ids, the digests of these (n, 32), and features as a model takes them."""

    digests: Digests
    inputs: torch.Tensor
    ids: Sequence[str]


class RowIndex:
    """All rows of several row sets. A sample that is in two of them is taken from the first."""

    def __init__(self, parts: Sequence[Rowset]) -> None:
        self._parts = [part.inputs.numpy() for part in parts]
        self._starts = np.cumsum([0, *(len(inputs) for inputs in self._parts)])
        self.people = [People(part.ids, part.digests) for part in parts]
        self._index = DigestIndex(
            np.concatenate([np.empty((0, DIGEST_BYTES), np.uint8), *(p.digests for p in parts)])
        )

    def __len__(self) -> int:
        return len(self._index)

    def without(self, are_gone: Callable[[Sequence[str]], npt.NDArray[np.bool_]]) -> "RowIndex":
        """Return the rows of everybody else."""
        masks = [are_gone(people.ids) for people in self.people]
        if not any(gone.any() for gone in masks):
            return self
        parts = []
        for people, inputs, gone in zip(self.people, self._parts, masks, strict=True):
            left = people.part(~gone)
            parts.append(Rowset(left.digests, torch.from_numpy(inputs[~gone]), left.ids))
        return RowIndex(parts)

    def find(self, digests: Digests) -> Rows:
        """Return the row of each blinded id, -1 where it is not held."""
        return self._index.find(digests)

    def inputs(self, rows: Rows) -> torch.Tensor:
        """Return the features of these rows."""
        part_of = np.searchsorted(self._starts, rows, side="right") - 1
        first = int(part_of[0]) if len(rows) else 0
        if (part_of == first).all():
            return torch.from_numpy(self._parts[first][rows - self._starts[first]])
        inputs = np.empty((len(rows), *self._parts[0].shape[1:]), dtype=np.float32)
        for part in np.unique(part_of):
            chosen = part_of == part
            inputs[chosen] = self._parts[part][rows[chosen] - self._starts[part]]
        return torch.from_numpy(inputs)
