"""Mean and deviation per channel of an array, fitted in float64 a piece at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Training rows lie within sqrt(rows) deviations, so this only tames wild values at test time.
MAX_DEVIATIONS = 1e6
_PIECE_VALUES = 1 << 21


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Standardises along one axis: value -> (value - mean) / deviation, missing -> 0.

    A channel that was constant (or never seen) in training has deviation 0 and gives 0.
    """

    axis: int
    mean: Floats  # (channels,)
    deviation: Floats  # (channels,)

    @classmethod
    def as_is(cls, num_channels: int, axis: int) -> "Standardisation":
        """Leave values as they are."""
        return cls(axis, np.zeros(num_channels), np.ones(num_channels))

    @classmethod
    def fit(cls, array: npt.NDArray[Any], axis: int) -> "Standardisation":
        """Fit on an array that has no infinite value; NaN is a missing value."""
        num_channels = array.shape[axis]
        low, high = np.full(num_channels, np.inf), np.full(num_channels, -np.inf)
        count = np.zeros(num_channels)
        for piece in _pieces(array, axis):
            low = np.fmin(low, np.fmin.reduce(piece, axis=1))
            high = np.fmax(high, np.fmax.reduce(piece, axis=1))
            count += np.count_nonzero(~np.isnan(piece), axis=1)
        varies = low < high
        seen = np.maximum(count, 1)
        # In units of the largest magnitude, so that no square overflows or vanishes; a power of
        # two, so that the division is exact.
        largest = np.where(count > 0, np.maximum(np.abs(low), np.abs(high)), 1.0)
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
        total = np.zeros(num_channels)
        for piece in _pieces(array, axis):
            total += np.nansum(piece / unit[:, None], axis=1)
        centre = total / seen
        squares = np.zeros(num_channels)
        for piece in _pieces(array, axis):
            squares += np.nansum((piece / unit[:, None] - centre[:, None]) ** 2, axis=1)
        constant = np.where(count > 0, low, 0.0)
        mean = np.where(varies, centre * unit, constant)
        return cls(axis, mean, np.where(varies, np.sqrt(squares / seen) * unit, 0.0))

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        shape = [1] * array.ndim
        shape[self.axis] = -1
        mean = self.mean.reshape(shape)
        varies = self.deviation > 0
        deviation = np.where(varies, self.deviation, 1.0).reshape(shape)
        out = np.empty(array.shape, dtype=np.float32)
        for rows in _row_slices(array):
            with np.errstate(over="ignore", invalid="ignore"):
                piece = (array[rows].astype(np.float64) - mean) / deviation
                piece *= varies.reshape(shape)
            np.nan_to_num(piece, copy=False, nan=0.0, posinf=MAX_DEVIATIONS, neginf=-MAX_DEVIATIONS)
            out[rows] = np.clip(piece, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        return out


def first_infinite_row(array: npt.NDArray[Any]) -> int | None:
    if array.dtype.kind != "f":
        return None
    for rows in _row_slices(array):
        infinite = np.isinf(array[rows]).reshape(len(array[rows]), -1).any(axis=1)
        if infinite.any():
            start: int = rows.start
            return start + int(infinite.argmax())
    return None


def _row_slices(array: npt.NDArray[Any]) -> Iterator[slice]:
    row_values = max(1, array[:1].size)
    step = max(1, _PIECE_VALUES // row_values)
    for start in range(0, len(array), step):
        yield slice(start, start + step)


def _pieces(array: npt.NDArray[Any], axis: int) -> Iterator[Floats]:
    """The array in pieces of (channels, values)."""
    for rows in _row_slices(array):
        piece = np.moveaxis(array[rows], axis, 0)
        yield piece.astype(np.float64).reshape(len(piece), -1)
