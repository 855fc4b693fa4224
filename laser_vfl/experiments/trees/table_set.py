"""A table that organisations share: a block of columns for each, and how it is split."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.evaluation.metrics import auc, r2
from laser_vfl.core.randomness import RandomStream, random_permutation

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class TableSet:
    """A block for each organisation, in roster order; a row that is null throughout is absent."""

    name: str
    task: Literal["binary", "regression"]
    blocks: Mapping[str, pl.DataFrame] = field(repr=False)
    targets: Array = field(repr=False)
    is_test: npt.NDArray[np.bool_] = field(repr=False)
    labels_at: tuple[str, ...]
    """The organisations that have labels."""
    note: str

    @property
    def metric(self) -> str:
        """What it is scored by."""
        return "auc" if self.task == "binary" else "r2"

    def score(self, predictions: Array, targets: Array) -> float | None:
        """Return how good predictions are: log-odds or probabilities, or values."""
        if self.task == "binary":
            return auc(predictions.astype(float), targets > 0)
        return r2(predictions.astype(float), targets.astype(float))

    def reduced(self, max_train: int, max_test: int) -> "TableSet":
        """Return at most so many rows of each part, drawn by chance, the same every time."""
        order = random_permutation(
            len(self.targets), seed=0, stream=RandomStream.FEWER_SAMPLES, counter=0
        )
        train, test = order[~self.is_test[order]][:max_train], order[self.is_test[order]][:max_test]
        rows = np.sort(np.concatenate([train, test]))
        blocks = {name: block[rows] for name, block in self.blocks.items()}
        return TableSet(
            self.name,
            self.task,
            blocks,
            self.targets[rows],
            self.is_test[rows],
            self.labels_at,
            self.note,
        )


def package_file(package: str, *path: str) -> Path:
    """Return a file that a package of PyPI comes with, without importing the package."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place, *path)
        if found.is_file():
            return found
    raise ConfigError(
        f"the table comes with the package {package}, which is not installed",
        hint=f"install it: pip install {package}",
    )
