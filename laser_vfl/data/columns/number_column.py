"""A column of numbers or booleans: scaled, with an indicator if training had missing ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.columns.scaling import Scaling, fit_scaling, scaling_from_json
from laser_vfl.data.columns.text_values import (
    DECIMALS,
    HOW_WRITTEN,
    Decimal,
    as_floats,
    cleaned,
    first_row,
    parse_booleans,
    parse_numbers,
)
from laser_vfl.data.values import finite, kind_of

NumberKind = Literal["number", "boolean"]


@dataclass(frozen=True)
class NumberColumn:
    """One number, and a second one that is 1 where it is missing, if that occurred in training."""

    name: str
    kind: NumberKind
    decimal: Decimal
    scaling: Scaling
    has_indicator: bool

    @property
    def order(self) -> tuple[int, ...]:
        """One number or two."""
        return (0, 0) if self.has_indicator else (0,)

    @classmethod
    def fit(
        cls, column: pl.Series, kind: NumberKind, decimal: Decimal, scaling: str, path: Path
    ) -> "NumberColumn":
        """Learn the scale of a column's numbers."""
        numbers = numbers_of(column, kind, decimal, path)
        scale = fit_scaling(numbers, scaling)
        return cls(column.name, kind, decimal, scale, bool(np.isnan(numbers).any()))

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        """Fill `out`, (rows, parts), with the encoded column."""
        numbers = numbers_of(column, self.kind, self.decimal, path)
        out[:, 0] = self.scaling.apply(numbers)
        if self.has_indicator:
            out[:, 1] = np.isnan(numbers)

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {
            "name": self.name,
            "kind": self.kind,
            "decimal": self.decimal,
            **self.scaling.to_json(),
            "missing_indicator": self.has_indicator,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "NumberColumn":
        """Return the column that a manifest has kept."""
        if stored["decimal"] not in DECIMALS:
            raise ValueError("unknown decimal sign")
        return cls(
            str(stored["name"]),
            cast(NumberKind, stored["kind"]),
            cast(Decimal, stored["decimal"]),
            scaling_from_json(stored),
            bool(stored["missing_indicator"]),
        )


def numbers_of(
    column: pl.Series, kind: NumberKind, decimal: Decimal, path: Path
) -> npt.NDArray[np.float64]:
    """Return the numbers of a column of any file, NaN where one is missing; refuse what is none."""
    found = kind_of(column, untyped=False, path=path)
    if found == "empty":
        return np.full(len(column), np.nan)
    if column.dtype == pl.Duration:
        return as_floats(column.dt.total_seconds(fractional=True) / 86_400)
    if found == "time":
        raise DataError(
            f'column "{column.name}" held numbers in training and has the type {column.dtype} here',
            hint="give the column the same type in all tables",
            where=str(path),
        )
    if found == "text":
        text = cleaned(column)
        values, bad = parse_booleans(text) if kind == "boolean" else parse_numbers(text, decimal)
        if bad.any():
            raise _unread(column.name, first_row(bad), kind, decimal, path)
    else:
        values = column.cast(pl.Float64)
    numbers = as_floats(values)
    return finite(numbers, column.name, path)


def plain_numbers(column: pl.Series, path: Path) -> pl.Series:
    """Return text that has a decimal point, as programs write numbers, as Float64."""
    return pl.Series(column.name, numbers_of(column, "number", ".", path)).fill_nan(None)


def _unread(name: str, row: int, kind: NumberKind, decimal: Decimal, path: Path) -> DataError:
    if kind == "boolean":
        what, how = "is neither yes nor no", "yes or no, true or false, 1 or 0"
    else:
        what, how = "is text, not a number", f"numbers as {HOW_WRITTEN[decimal]}"
    return DataError(
        f'row {row} of column "{name}" {what}',
        hint=f"write {how}, or leave it empty",
        where=str(path),
    )
