"""The encoding of one column of a table: how it is fitted, kept in a manifest, and applied."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.columns.category_column import CategoryColumn, names_of
from laser_vfl.data.columns.column_spec import MAX_VALUES, NO_SPEC, ColumnSpec
from laser_vfl.data.columns.moment_column import MomentColumn
from laser_vfl.data.columns.number_column import NumberColumn, NumberKind
from laser_vfl.data.columns.text_values import (
    DATE_FORMATS,
    are_booleans,
    cleaned,
    decimal_of,
    iso_days,
    looks_like_codes,
    moment_formats,
)
from laser_vfl.data.values import kind_of

MIN_ROWS_TO_JUDGE = 50
"""With fewer rows than this no column is taken for ids or free text."""
ID_SHARE = 0.9
"""Text of which this share of rows has a value of its own is ids or free text."""
WORDS_OF_TEXT = 4
"""A column of text with so many words a value is free text."""


class ColumnEncoding(Protocol):
    """How one column of the table becomes numbers or a code."""

    @property
    def name(self) -> str: ...
    @property
    def order(self) -> tuple[int, ...]:
        """What it becomes, as in `TableForm`: 0 for a number, or the cardinality of a category."""

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        """Fill `out`, (rows, parts) and zero, with the encoded column."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class OmittedColumn:
    """A column that says nothing that could be learnt, and that nobody has asked for."""

    name: str
    reason: str
    """What it was taken for: empty, ids, row_numbers, free_text or rare_values."""

    @property
    def is_number(self) -> bool:
        """Whether it could be used as a number."""
        return self.reason == "row_numbers"

    @property
    def order(self) -> tuple[int, ...]:
        """Nothing."""
        return ()

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        """Write nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {"name": self.name, "kind": "omitted", "reason": self.reason}


def fit_column(
    column: pl.Series,
    *,
    untyped: bool,
    path: Path,
    scaling: str = "standard",
    spec: ColumnSpec | None = None,
) -> ColumnEncoding:
    """Learn how to encode a column: as its `spec` says, or else by the rules.

    With a `spec`, even an empty one, somebody has asked for the column, and it is not left out.
    """
    asked, wanted = spec is not None, spec or NO_SPEC
    kind, form = _kind(column, untyped, wanted, path)
    if kind in ("number", "boolean"):
        number: NumberKind = "boolean" if kind == "boolean" else "number"
        if not asked and number == "number" and _are_row_numbers(column):
            return OmittedColumn(column.name, "row_numbers")
        decimal = decimal_of(cleaned(column)) if column.dtype == pl.String else None
        return NumberColumn.fit(column, number, decimal or ".", wanted.scaling or scaling, path)
    if kind == "datetime":
        reference = None if wanted.reference is None else iso_days(wanted.reference)
        return MomentColumn.fit(column, form, reference, path)
    if kind == "empty":
        if asked:
            raise DataError(
                f'column "{column.name}" has no value in any row',
                hint="take it out of data.columns, or use a table that has values",
                where=str(path),
            )
        return OmittedColumn(column.name, "empty")
    if not asked and (reason := _unfit(column, path)):
        return OmittedColumn(column.name, reason)
    category = CategoryColumn.fit(column, wanted.max_values or MAX_VALUES, path)
    if not category.values and not asked:
        return OmittedColumn(column.name, "rare_values")
    return category


def column_from_json(stored: Mapping[str, Any]) -> ColumnEncoding:
    """Return the column that a manifest has kept."""
    match stored["kind"]:
        case "number" | "boolean":
            return NumberColumn.from_json(stored)
        case "category":
            return CategoryColumn.from_json(stored)
        case "datetime":
            return MomentColumn.from_json(stored)
        case "omitted":
            return OmittedColumn(str(stored["name"]), str(stored["reason"]))
        case kind:
            raise ValueError(f"unknown kind of column {kind!r}")


def _kind(column: pl.Series, untyped: bool, spec: ColumnSpec, path: Path) -> tuple[str, str]:
    """Return what a column is, and the format of a date that is text."""
    kind = kind_of(column, untyped=False, path=path)
    if column.dtype.is_float() and column.fill_nan(None).null_count() == len(column):
        kind = "empty"
    elif column.dtype == pl.Duration and kind != "empty":
        kind = "number"
    text = cleaned(column) if kind == "text" else None
    if kind == "empty" or (text is not None and text.null_count() == len(text)):
        return "empty", ""
    if spec.type is not None:
        return spec.type, _format_asked(column, text, spec, path)
    if kind == "time":
        return "datetime", ""
    if text is None:
        return kind, ""
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        return "category", ""
    if untyped and are_booleans(text):
        return "boolean", ""
    if formats := moment_formats(text):
        return "datetime", formats[0]
    if untyped and not looks_like_codes(text) and decimal_of(text):
        return "number", ""
    return "category", ""


def _format_asked(column: pl.Series, text: pl.Series | None, spec: ColumnSpec, path: Path) -> str:
    if spec.type != "datetime" or text is None:
        return ""
    if spec.format is not None:
        return spec.format
    formats = moment_formats(text)
    if not formats:
        raise DataError(
            f'column "{column.name}" has values that cannot be read as dates or times',
            hint=f"correct them, or give `format`; known are {', '.join(DATE_FORMATS)}, each with "
            "a time after it or without",
            where=str(path),
        )
    return formats[0]


def _are_row_numbers(column: pl.Series) -> bool:
    """Tell whether whole numbers count rows: all different, and hardly one left out."""
    if len(column) < MIN_ROWS_TO_JUDGE:
        return False
    if column.dtype == pl.String:
        column = cleaned(column).cast(pl.Int64, strict=False)
    if not column.dtype.is_integer() or column.null_count():
        return False
    if column.n_unique() < len(column):
        return False
    low, high = column.min(), column.max()
    assert isinstance(low, int)
    assert isinstance(high, int)
    return high - low < 2 * len(column)


def _unfit(column: pl.Series, path: Path) -> str:
    """Return what text is that is no category: ids or free_text; empty if it may be one."""
    names = names_of(column, path).drop_nulls()
    if len(names) < MIN_ROWS_TO_JUDGE:
        return ""
    share = names.n_unique() / len(names)
    words = (names.head(1000).str.count_matches(r"\s+") + 1).mean()
    if share > ID_SHARE / 2 and isinstance(words, float) and words >= WORDS_OF_TEXT:
        return "free_text"
    return "ids" if share > ID_SHARE else ""
