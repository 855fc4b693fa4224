"""Sequences of measurements cut by variable, with what was measured and what never changes.

A client's block is (n, steps, features): its variables, standardised; for each of them whether it
was measured at that step; and its part of every group of static features, the same at all steps.
A value that was not measured is the last one that was, or 0, the mean, before the first. Values
beyond the outermost thousandths of those in training samples are drawn in to there: files have
impossible ones (a pH of 735), and one of them would flatten all others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.data.sets.column_cuts import equal_runs, spread
from laser_vfl.data.sets.dataset import Blocks, Floats, Samples
from laser_vfl.data.standardisation import Standardisation

OUTERMOST = (0.001, 0.999)

Array = npt.NDArray[Any]


def sequence_blocks(train: Samples, test: Samples, num_clients: int) -> Blocks:
    """Cut sequences (n, steps, variables), NaN where nothing was measured."""
    parts = [spread(group.shape[1], num_clients) for group in train.static]
    blocks = Blocks([], [])
    for k, run in enumerate(equal_runs(train.features.shape[2], num_clients)):
        chart = _Bounded.fit(train.features[:, :, run], axis=2)
        static = [
            _Bounded.fit(group[:, part[k]], axis=1)
            for group, part in zip(train.static, parts, strict=True)
        ]
        for samples, out in ((train, blocks.train), (test, blocks.test)):
            groups = [
                fitted.apply(group[:, part[k]])
                for fitted, group, part in zip(static, samples.static, parts, strict=True)
            ]
            out.append(_block(samples.features[:, :, run], chart, groups))
    return blocks


def _block(values: Array, chart: "_Bounded", static: list[Floats]) -> Floats:
    num, steps, variables = values.shape
    width = 2 * variables + sum(group.shape[1] for group in static)
    block = np.empty((num, steps, width), dtype=np.float32)
    block[:, :, :variables] = chart.apply(_carried_forward(values))
    block[:, :, variables : 2 * variables] = ~np.isnan(values)
    start = 2 * variables
    for group in static:
        stop = start + group.shape[1]
        block[:, :, start:stop] = group[:, None, :]
        start = stop
    return block


def _carried_forward(values: Array) -> Array:
    """Put the last measured value where there is none; NaN stays before the first."""
    steps = np.arange(values.shape[1])[None, :, None]
    last = np.maximum.accumulate(np.where(np.isnan(values), 0, steps), axis=1)
    return np.take_along_axis(values, last, axis=1)


@dataclass(frozen=True, eq=False)
class _Bounded:
    """Standardises what lies between bounds; both are of training samples."""

    low: Array
    high: Array
    standard: Standardisation

    @classmethod
    def fit(cls, values: Array, axis: int) -> "_Bounded":
        bounds = [_bounds(np.take(values, i, axis=axis)) for i in range(values.shape[axis])]
        low, high = (np.array(side, dtype=np.float32) for side in zip(*bounds, strict=True))
        return cls(low, high, Standardisation.fit(np.clip(values, low, high), axis=axis))

    def apply(self, values: Array) -> Floats:
        return self.standard.apply(np.clip(values, self.low, self.high))


def _bounds(values: Array) -> tuple[float, float]:
    measured = values[~np.isnan(values)]
    if not len(measured):
        return -np.inf, np.inf
    low, high = np.quantile(measured, OUTERMOST)
    return float(low), float(high)
