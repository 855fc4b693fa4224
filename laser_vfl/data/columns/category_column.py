"""A column of categories: a code for each frequent value, one for all others, one for missing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.table_form import MAX_CODES
from laser_vfl.data.columns.calendar_range import check_calendar
from laser_vfl.data.columns.column_spec import FEW_VALUES, MIN_ROWS
from laser_vfl.data.columns.text_values import cleaned
from laser_vfl.data.values import kind_of

UNSEEN, MISSING_CODE, FIRST_VALUE = 0, 1, 2
"""The code of what training did not have or seldom had, that of a missing value, and the rest."""


@dataclass(frozen=True)
class CategoryColumn:
    """The values that are kept, by falling frequency, and the rule by which they were."""

    name: str
    values: tuple[str, ...]
    num_values: int
    """How many different ones training had."""
    max_values: int

    @property
    def order(self) -> tuple[int, ...]:
        """One code."""
        return (FIRST_VALUE + len(self.values),)

    @classmethod
    def fit(cls, column: pl.Series, max_values: int, path: Path) -> "CategoryColumn":
        """Choose the values to keep: the most frequent ones, and no rare ones if there are many.

        Ties are decided by the alphabet.
        """
        counts = names_of(column, path).drop_nulls().value_counts(name="num_rows")
        counts = counts.sort(["num_rows", column.name], descending=[True, False])
        num_values = len(counts)
        if num_values > FEW_VALUES:
            counts = counts.filter(pl.col("num_rows") >= MIN_ROWS)
        kept = tuple(counts[column.name].head(max_values).to_list())
        return cls(column.name, kept, num_values, max_values)

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        """Fill `out`, (rows, 1), with codes."""
        names = names_of(column, path)
        if self._are_whole:
            names = names.str.replace(r"^(-?\d+)\.0+$", "$1")  # what another tool makes of 7
        codes = np.full(len(column), UNSEEN, dtype=np.int64)
        if self.values:
            known = list(range(FIRST_VALUE, FIRST_VALUE + len(self.values)))
            found = names.replace_strict(
                list(self.values), known, default=UNSEEN, return_dtype=pl.Int64
            )
            codes = found.fill_null(UNSEEN).to_numpy().copy()
        codes[names.is_null().to_numpy()] = MISSING_CODE
        out[:, 0] = codes

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps, with the rule by which values were kept."""
        return {
            "name": self.name,
            "kind": "category",
            "values": list(self.values),
            "num_values": self.num_values,
            "max_values": self.max_values,
            "min_rows": MIN_ROWS if self.num_values > FEW_VALUES else 1,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "CategoryColumn":
        """Return the column that a manifest has kept."""
        values = tuple(map(str, stored["values"]))
        if len(set(values)) < len(values) or len(values) + FIRST_VALUE > MAX_CODES:
            raise ValueError("the values of a category cannot be used")
        return cls(
            str(stored["name"]), values, int(stored["num_values"]), int(stored["max_values"])
        )

    @cached_property
    def _are_whole(self) -> bool:
        return bool(self.values) and all(re.fullmatch(r"-?\d+", name) for name in self.values)


def names_of(column: pl.Series, path: Path) -> pl.Series:
    """Return the values of a column of any type as text, null where one is missing."""
    found = kind_of(column, untyped=False, path=path)  # refuses lists and the like
    if found == "empty":
        return pl.Series(column.name, [None] * len(column), dtype=pl.String)
    if column.dtype.is_float() or column.dtype.is_decimal():
        numbers = column.cast(pl.Float64).fill_nan(None)
        whole = numbers.drop_nulls()
        if ((whole == whole.floor()) & (whole.abs() < 2**53)).all():
            return numbers.cast(pl.Int64).cast(pl.String)
        return numbers.cast(pl.String)
    if found == "text":
        return cleaned(column)
    if column.dtype == pl.Duration:
        column = column.to_physical()
    check_calendar(column, path)
    return column.cast(pl.String)
