"""How columns were encoded by release 0.1.0: its models, and runs that it began, need it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.data.columns.column_rules import ColumnEncoding
from laser_vfl.data.standardisation import Standardisation
from laser_vfl.data.values import Kind, as_numbers, kind_of

MAX_VALUES = 32
FEW_VALUES = 10  # a column with no more values than this keeps them all, rare or not
RARE_ROWS = 2
RARE_SHARE = 0.005


def fit_earlier(
    column: pl.Series, *, untyped: bool, path: Path, scaling: str = "standard"
) -> ColumnEncoding:
    """Learn how to encode a column. Times are always scaled: they have no unit of their own."""
    kind = kind_of(column, untyped=untyped, path=path)
    if kind == "text":
        return Category(column.name, _frequent_values(column.cast(pl.String)))
    numbers = as_numbers(column, kind, path=path) if kind != "empty" else np.empty(0)
    if scaling == "none" and kind != "time":
        return Number(column.name, kind, mean=0.0, deviation=1.0)
    standard = Standardisation.fit(numbers[:, None], axis=1)
    return Number(column.name, kind, float(standard.mean[0]), float(standard.deviation[0]))


def earlier_from_json(stored: Mapping[str, Any]) -> ColumnEncoding:
    name, kind = str(stored["name"]), stored["kind"]
    if kind == "text":
        return Category(name, tuple(map(str, stored["values"])))
    if kind not in ("number", "boolean", "time", "empty"):
        raise ValueError(f"unknown kind of column {kind!r}")
    return Number(name, cast(Kind, kind), float(stored["mean"]), float(stored["deviation"]))


@dataclass(frozen=True)
class Number:
    """(number - `mean`) / `deviation`; a missing number becomes 0, which is the mean."""

    name: str
    kind: Kind
    mean: float
    deviation: float

    @property
    def order(self) -> tuple[int, ...]:
        return (0,)

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        if self.kind == "empty":  # nothing was learnt of this column, whatever it holds now
            return
        numbers = as_numbers(column, self.kind, path=path)
        standard = Standardisation(1, np.array([self.mean]), np.array([self.deviation]))
        out[:] = standard.apply(numbers[:, None])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "mean": self.mean,
            "deviation": self.deviation,
        }


@dataclass(frozen=True)
class Category:
    """A code for each frequent value, and a last one for rare, unseen and missing values."""

    name: str
    values: tuple[str, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return (len(self.values) + 1,)

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        kind_of(column, untyped=False, path=path)  # refuses lists and the like
        other = len(self.values)
        if column.dtype == pl.Null or not self.values:
            out[:] = other
            return
        places = column.cast(pl.String).replace_strict(
            list(self.values), list(range(other)), default=other, return_dtype=pl.Int64
        )
        out[:, 0] = places.fill_null(other).to_numpy()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "text", "values": list(self.values)}


def _frequent_values(column: pl.Series) -> tuple[str, ...]:
    """Return values by falling frequency, then by name; without rare ones if there are many."""
    counts = [
        (value, num_rows)
        for value, num_rows in column.value_counts(name="num_rows").iter_rows()
        if value is not None
    ]
    if len(counts) > FEW_VALUES:
        enough = max(RARE_ROWS, RARE_SHARE * len(column))
        counts = [(value, num_rows) for value, num_rows in counts if num_rows >= enough]
    counts.sort(key=lambda pair: (-pair[1], pair[0]))
    return tuple(value for value, _ in counts[:MAX_VALUES])
