"""What a raw column holds (numbers, booleans, times or text), and its values as float64."""

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError

Kind = Literal["number", "boolean", "time", "text", "empty"]

# What people write for "not known" in a column of numbers.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})

_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def kind_of(column: pl.Series, *, untyped: bool, path: Path) -> Kind:
    """Return what the column holds; text is examined only where the file has no types (CSV)."""
    dtype = column.dtype
    if dtype == pl.Null or column.null_count() == len(column):
        return "empty"
    if dtype.is_numeric():
        return "number"
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_temporal():
        return "time"
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return "text"
    if dtype != pl.String:
        raise DataError(
            f'column "{column.name}" has the type {dtype}, which cannot be encoded',
            hint="turn it into numbers or text, or leave it out with `exclude`",
            where=str(path),
        )
    return _kind_of_text(column) if untyped else "text"


def as_numbers(column: pl.Series, kind: Kind, *, path: Path) -> npt.NDArray[np.float64]:
    """Return the values of a column of a numeric kind, NaN where one is missing.

    The column may come from another file than the one where the kind was found, with another
    type: whatever can be read as the same kind is, and the first row that cannot is named.
    """
    found = kind_of(column, untyped=False, path=path)
    if found == "empty":
        return np.full(len(column), np.nan)
    if (found == "time") != (kind == "time"):
        hint = "give the column the same type in all tables"
        was = "times" if kind == "time" else "numbers"
        raise DataError(
            f'column "{column.name}" held {was} in training and has the type {column.dtype} here',
            hint=hint,
            where=str(path),
        )
    if found == "time":
        values = _days(column)
    elif found == "text":
        values, bad = _parse(column.cast(pl.String), booleans=kind == "boolean")
        if bad.any():
            raise is_text(column.name, _first(bad) + 1, path)
    else:
        values = column.cast(pl.Float64)
    numbers = values.fill_null(np.nan).to_numpy().astype(np.float64, copy=False)
    return finite(numbers, column.name, path)


def finite(numbers: npt.NDArray[np.float64], name: str, path: Path) -> npt.NDArray[np.float64]:
    """Return the numbers of a column, or refuse the first that is infinite."""
    infinite = np.isinf(numbers)
    if infinite.any():
        raise DataError(
            f'column "{name}" is infinite in row {int(infinite.argmax()) + 1}',
            hint="correct the value or leave it empty",
            where=str(path),
        )
    return numbers


def is_text(name: str, row: int, path: Path) -> DataError:
    """Return the error for text in a column of numbers; rows count from 1."""
    return DataError(
        f'row {row} of column "{name}" is text, not a number',
        hint="correct the value or leave it empty",
        where=str(path),
    )


def _kind_of_text(column: pl.Series) -> Kind:
    for kind in ("number", "boolean"):
        values, bad = _parse(column, booleans=kind == "boolean")
        if bad.any():
            continue
        if values.is_null().all():
            return "empty"
        return kind
    return "text"


def _parse(column: pl.Series, *, booleans: bool) -> tuple[pl.Series, pl.Series]:
    """Return text as Float64, null where missing, and where it is neither a number nor missing."""
    text = column.str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False).fill_nan(None)
    unread = numbers.is_null() & text.is_not_null()
    if not unread.any():
        return numbers, unread
    words = text.str.to_lowercase()
    if booleans:
        truth = words.replace_strict(
            ["true", "false"], [1.0, 0.0], default=None, return_dtype=pl.Float64
        )
        numbers = numbers.zip_with(truth.is_null(), truth)
    known = words.is_in(sorted(MISSING)).fill_null(value=True)
    return numbers, numbers.is_null() & ~known


def _days(column: pl.Series) -> pl.Series:
    dtype = column.dtype
    ticks = 1 if dtype == pl.Date else _DAY[getattr(dtype, "time_unit", "ns")]
    return column.to_physical().cast(pl.Float64) / ticks


def _first(mask: pl.Series) -> int:
    row = mask.arg_max()
    return 0 if row is None else row
