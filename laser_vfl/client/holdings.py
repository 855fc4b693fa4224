"""The rows that a client can answer for: found by blinded id, ready for its model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import DIGEST_BYTES

Digests = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rowset:
    """Some rows: their blinded ids (n, 32) and their features as a model takes them."""

    digests: Digests
    inputs: torch.Tensor


class Holdings:
    """All rows of several row sets. A sample that is in two of them is taken from the first."""

    def __init__(self, parts: Sequence[Rowset]) -> None:
        self._parts = [part.inputs.numpy() for part in parts]
        self._starts = np.cumsum([0, *(len(inputs) for inputs in self._parts)])
        keys = _keys(
            np.concatenate([np.empty((0, DIGEST_BYTES), np.uint8), *(p.digests for p in parts)])
        )
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, digests: Digests) -> Rows:
        """Return the row of each blinded id, -1 where it is not held."""
        if not len(self._keys):
            return np.full(len(digests), -1, dtype=np.int64)
        keys = _keys(digests)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._order[places], -1)

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


def _keys(digests: Digests) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").reshape(-1)
