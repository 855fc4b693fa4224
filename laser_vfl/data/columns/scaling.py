"""How the numbers of one column are brought to one scale; a missing one becomes 0."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.standardisation import Standardisation

Floats = npt.NDArray[np.float64]
NUM_STEPS = 256
STANDARD_SCALING = "standard"


class Scaling(Protocol):
    """Turns numbers into float32 values without NaN."""

    @property
    def name(self) -> str: ...
    def apply(self, numbers: Floats) -> npt.NDArray[np.float32]: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Linear:
    """(number - `mean`) / `deviation`, or numbers as they are; missing ones become the mean."""

    name: str
    mean: float = 0.0
    deviation: float = 1.0

    def apply(self, numbers: Floats) -> npt.NDArray[np.float32]:
        """Scale these numbers."""
        standard = Standardisation(1, np.array([self.mean]), np.array([self.deviation]))
        return standard.apply(numbers[:, None])[:, 0]

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {"scaling": self.name, "mean": self.mean, "deviation": self.deviation}


@dataclass(frozen=True)
class Quantile:
    """What a normal distribution has at a number's rank in training; missing ones the median.

    Between 257 quantiles of the training values it is linear, and beyond them constant.
    """

    quantiles: tuple[float, ...]
    name: str = "quantile"

    def apply(self, numbers: Floats) -> npt.NDArray[np.float32]:
        """Scale these numbers."""
        known, wanted = self._curve
        if len(known) < 2:  # one value says nothing
            return np.zeros(len(numbers), dtype=np.float32)
        scaled = np.interp(numbers, known, wanted)
        return np.where(np.isnan(numbers), 0.0, scaled).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {"scaling": self.name, "quantiles": list(self.quantiles)}

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """Return the different quantiles, and the mean of a normal distribution's at each."""
        last = len(self.quantiles) - 1
        half = 0.5 / last
        normal = [
            NormalDist().inv_cdf(min(max(place / last, half), 1 - half))
            for place in range(last + 1)
        ]
        known, inverse, counts = np.unique(
            np.array(self.quantiles), return_inverse=True, return_counts=True
        )
        return known, np.bincount(inverse, weights=normal) / counts


def fit_scaling(numbers: Floats, name: str) -> Scaling:
    """Learn how to scale numbers; NaN is a missing one."""
    known = numbers[~np.isnan(numbers)]
    if name == "none":
        return Linear("none")
    if name == "quantile":
        grid = np.linspace(0, 1, NUM_STEPS + 1)
        found = np.quantile(known, grid, method="nearest") if len(known) else np.zeros(2)
        return Quantile(tuple(found.tolist()))
    if name != STANDARD_SCALING:
        raise ConfigError(f'unknown scaling "{name}"', hint="use standard, quantile or none")
    standard = Standardisation.fit(numbers[:, None], axis=1)
    return Linear(STANDARD_SCALING, float(standard.mean[0]), float(standard.deviation[0]))


def scaling_from_json(stored: Mapping[str, Any]) -> Scaling:
    """Return the scaling that a manifest has kept."""
    name = stored["scaling"]
    if name == "quantile":
        quantiles = tuple(map(float, stored["quantiles"]))
        if len(quantiles) < 2 or not np.isfinite(quantiles).all():
            raise ValueError("the quantiles cannot be used")
        return Quantile(quantiles)
    if name not in (STANDARD_SCALING, "none"):
        raise ValueError(f"unknown scaling {name!r}")
    return Linear(str(name), float(stored["mean"]), float(stored["deviation"]))
