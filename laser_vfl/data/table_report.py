"""How each column of a table is read, what is dropped of it, and what looks wrong."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.data.columns.category_column import UNSEEN, CategoryColumn, names_of
from laser_vfl.data.columns.column_rules import ColumnEncoding, OmittedColumn
from laser_vfl.data.columns.column_spec import FEW_VALUES, MIN_ROWS, ColumnSpec
from laser_vfl.data.columns.moment_column import MomentColumn
from laser_vfl.data.columns.number_column import NumberColumn
from laser_vfl.data.columns.text_values import (
    DATE_FORMATS,
    DECIMALS,
    HOW_WRITTEN,
    Decimal,
    are_thousands_in_doubt,
    cleaned,
    looks_like_codes,
    moment_formats,
    parse_moments,
    parse_numbers,
)
from laser_vfl.data.encoding import Encoding
from laser_vfl.data.labels import LabelEncoding
from laser_vfl.data.tables import Table

LEFT_OUT: Final = {
    "empty": "it has no value",
    "ids": "nearly every row has a value of its own, as ids have",
    "row_numbers": "it counts the rows, as ids do",
    "free_text": "it is free text",
    "rare_values": f"none of its values has {MIN_ROWS} rows",
}
MIN_ROWS_TO_JUDGE = 50
ROWS_LOOKED_AT = 50_000
"""Shares of rows are those of so many, evenly spread, if a table has more."""
NUM_BINS = 100
NEARLY = 0.95
HANDFUL = 10
"""A class with fewer rows than this is hardly learnt."""


@dataclass(frozen=True)
class Remark:
    """What is noteworthy of a column or of the label."""

    code: str
    text: str
    is_warning: bool = True


@dataclass(frozen=True)
class ColumnReport:
    """How one column is read."""

    name: str
    type: str
    """number, boolean, category, datetime or left out."""
    scaling: str
    num_values: int
    """How many different ones there are, of a category."""
    num_kept: int
    """How many of these have a place of their own."""
    dropped_share: float
    """Of the rows: those with a value that has none."""
    missing_share: float
    remarks: tuple[Remark, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--format json` shows."""
        return {
            "name": self.name,
            "type": self.type,
            "scaling": self.scaling or None,
            "values": self.num_values if self.type == "category" else None,
            "values_kept": self.num_kept if self.type == "category" else None,
            "rows_dropped_share": self.dropped_share,
            "missing_share": self.missing_share,
            "remarks": [{"code": r.code, "text": r.text} for r in self.remarks],
        }


@dataclass(frozen=True)
class TableReport:
    """How a training table is read."""

    num_rows: int
    columns: tuple[ColumnReport, ...]
    label: tuple[Remark, ...]

    @property
    def warnings(self) -> list[str]:
        """What looks wrong, a line each."""
        of_columns = [
            f'column "{column.name}": {remark.text}'
            for column in self.columns
            for remark in column.remarks
            if remark.is_warning
        ]
        return [*of_columns, *(f"label: {remark.text}" for remark in self.label)]

    @property
    def summary(self) -> str:
        """How many columns are read as what, and which are left out."""
        counted = Counter(column.type for column in self.columns)
        kinds = [f"{num} {kind}" for kind, num in counted.items() if kind != "left out"]
        dropping = [
            f'"{c.name}" keeps {c.num_kept} of {c.num_values} values'
            for c in self.columns
            if c.num_kept < c.num_values
        ]
        gone = [f'"{c.name}"' for c in self.columns if c.type == "left out"]
        parts = [
            f"{len(self.columns)} columns: {', '.join(kinds)}",
            _listed(dropping),
            f"left out: {_listed(gone)}" if gone else "",
        ]
        return "; ".join(part for part in parts if part)


def report_of(table: Table, encoding: Encoding, labels: LabelEncoding | None) -> TableReport:
    """Look at a training table as this encoding, fitted on it, reads it."""
    told = tuple(label_remarks(table, labels)) if labels is not None else ()
    num_rows, table = len(table), table.sample(ROWS_LOOKED_AT)
    frame = table.features
    if not isinstance(frame, pl.DataFrame):
        return TableReport(num_rows, (), told)
    targets = _targets(table, labels)
    columns = tuple(
        _column_report(frame[column.name], column, table, targets, labels)
        for column in encoding.columns
    )
    return TableReport(num_rows, columns, told)


def surprises(table: Table, encoding: Encoding, rows: npt.NDArray[np.float32]) -> list[str]:
    """Say what is odd of a table that an encoding was not fitted on; `rows` are its encoded ones.

    None of this is an error: all of these rows are predicted.
    """
    found, form = [], encoding.form
    categories = [column for column in encoding.columns if any(column.order)]
    codes = rows[:, form.num_numbers :] if form is not None else rows[:, :0]
    for place, column in enumerate(categories):
        if isinstance(column, CategoryColumn) and len(rows) and (codes[:, place] == UNSEEN).all():
            found.append(f'no value of column "{column.name}" was in the training table')
    blank = without_values(table, encoding)
    if blank.any():
        found.append(
            f"{int(blank.sum())} of {len(table)} rows have no value in any column, the first is "
            f"row {int(blank.argmax()) + 1}"
        )
    return found


def without_values(table: Table, encoding: Encoding) -> npt.NDArray[np.bool_]:
    """Mark the rows in which all features that are used are missing."""
    frame, names = table.features, encoding.column_names
    if isinstance(frame, pl.DataFrame) and names is not None:
        blank = np.ones(len(table), dtype=bool)
        for name in names:
            blank &= frame[name].is_null().to_numpy()
        return blank
    array = np.asarray(frame)
    if array.dtype.kind != "f":
        return np.zeros(len(array), dtype=bool)
    return np.array([bool(np.isnan(row).all()) for row in array])


def _column_report(
    raw: pl.Series,
    column: ColumnEncoding,
    table: Table,
    targets: npt.NDArray[Any] | None,
    labels: LabelEncoding | None,
) -> ColumnReport:
    is_text = raw.dtype == pl.String or isinstance(raw.dtype, pl.Categorical | pl.Enum)
    names = names_of(raw, table.path) if is_text else None
    num_missing = (raw if names is None else names).null_count()
    if raw.dtype.is_float():
        num_missing += int(raw.is_nan().sum())
    missing = num_missing / len(raw)
    if isinstance(column, OmittedColumn):
        remark = Remark(column.reason, f"left out: {LEFT_OUT[column.reason]}")
        return ColumnReport(column.name, "left out", "", 0, 0, 0.0, missing, (remark,))
    written = np.zeros((len(raw), len(column.order)), dtype=np.float32)
    column.write(raw, written, table.path)
    remarks = list(_remarks(raw, names, column, table.spec.columns.get(column.name)))
    if (written == written[:1]).all():
        remarks.append(_same_throughout(column))
    elif targets is not None and labels is not None and _tells(written, column, targets, labels):
        remarks.append(
            Remark("leak", "it nearly tells the label by itself: is it known before the label is?")
        )
    kind, scaling, num_values, num_kept = str(column.to_json()["kind"]), "", 0, 0
    dropped = 0.0
    if isinstance(column, CategoryColumn):
        num_values, num_kept = column.num_values, len(column.values)
        dropped = float((written == UNSEEN).mean())
    elif isinstance(column, NumberColumn):
        scaling = column.scaling.name
    elif isinstance(column, MomentColumn):
        scaling = ", ".join(column.parts)
    return ColumnReport(
        column.name, kind, scaling, num_values, num_kept, dropped, missing, tuple(remarks)
    )


def _remarks(
    raw: pl.Series, names: pl.Series | None, column: ColumnEncoding, spec: ColumnSpec | None
) -> Iterator[Remark]:
    is_text = raw.dtype == pl.String
    if isinstance(column, CategoryColumn):
        if column.num_values > FEW_VALUES and len(column.values) < column.num_values:
            num = column.num_values - len(column.values)
            yield Remark(
                "values_dropped",
                f"{num} of {column.num_values} values share one place: they have fewer than "
                f"{MIN_ROWS} rows, or are not among the {column.max_values} most frequent ones",
                is_warning=False,
            )
        if is_text and names is not None:
            yield from _misread(names)
    if isinstance(column, NumberColumn) and is_text and column.decimal != ".":
        yield from _decimal_remarks(raw, column)
    is_told = spec is not None and spec.format is not None
    if isinstance(column, MomentColumn) and is_text and names is not None and not is_told:
        formats = moment_formats(cleaned(names))
        if {"%d/%m/%Y", "%m/%d/%Y"} <= set(formats):
            yield Remark(
                "ambiguous_dates",
                "its dates could begin with the day or with the month, and are read with the day "
                "first: give `format`",
            )


def _decimal_remarks(raw: pl.Series, column: NumberColumn) -> Iterator[Remark]:
    """Say which decimal sign was taken, and whether thousands could be meant otherwise."""
    yield Remark("decimal", f"numbers are read as {HOW_WRITTEN[column.decimal]}", is_warning=False)
    yield from _in_doubt(raw, column.decimal)


def _in_doubt(raw: pl.Series, decimal: Decimal) -> Iterator[Remark]:
    if are_thousands_in_doubt(cleaned(raw), decimal):
        one = "1.234" if decimal == "," else "1,234"
        yield Remark(
            "ambiguous_numbers",
            f"a value such as {one} is read as 1234: write numbers with a decimal point alone if "
            "that is wrong",
        )


def _same_throughout(column: ColumnEncoding) -> Remark:
    """Say why a column is the same in every row."""
    if isinstance(column, CategoryColumn) and column.num_values > 1 and not column.values:
        return Remark(
            "rare_values",
            f"none of its {column.num_values} values has {MIN_ROWS} rows, so all share one place "
            "and say nothing: exclude it, or write its values in fewer groups",
        )
    return Remark("constant", "it has one value alone, which says nothing")


def _misread(names: pl.Series) -> Iterator[Remark]:
    """Say if most of a category's values are numbers or dates."""
    some = names.drop_nulls().head(1000)
    if not len(some) or looks_like_codes(some):
        return
    unread = [parse_numbers(some, decimal)[1] for decimal in DECIMALS]
    bad = reduce(and_, unread).sum()
    if bad <= (1 - 0.8) * len(some):
        in_one_way = min(one.sum() for one in unread) == bad
        what = "its values are" if not bad else "most of its values are"
        todo = "correct the others, or set type: number if amounts are meant"
        if not in_one_way:
            what, todo = f"{what} written as 1,5 or as 1.5, as", "write all of them in one way"
        yield Remark("numbers_as_text", f"{what} numbers, and it is read as a category: {todo}")
        return
    for form in DATE_FORMATS:
        bad = parse_moments(some, form)[1].sum()
        if bad <= (1 - 0.8) * len(some):
            yield Remark(
                "dates_as_text",
                "most of its values are dates, and it is read as a category: correct the "
                "others, or leave them empty",
            )
            return


def _targets(table: Table, labels: LabelEncoding | None) -> npt.NDArray[Any] | None:
    if labels is None or table.labels is None:
        return None
    targets, labelled = labels.apply(table)
    return np.where(labelled & (targets >= 0 if labels.classes else True), targets, np.nan)


def _tells(
    written: npt.NDArray[np.float32],
    column: ColumnEncoding,
    targets: npt.NDArray[Any],
    labels: LabelEncoding,
) -> bool:
    """Whether a column alone tells nearly all that there is to know of the label."""
    known = ~np.isnan(targets)
    values, wanted = written[known, 0], targets[known]
    if len(wanted) < MIN_ROWS_TO_JUDGE:
        return False
    if labels.task == "regression":
        if any(column.order) or values.std() == 0 or wanted.std() == 0:
            return False
        return bool(abs(np.corrcoef(values, wanted)[0, 1]) > 0.99)
    different, groups = np.unique(values, return_inverse=True)
    num_bins = min(NUM_BINS, len(values) // (2 * MIN_ROWS))
    if len(different) > num_bins and not any(column.order):
        edges = np.quantile(values, np.linspace(0, 1, num_bins + 1)[1:-1])
        groups = np.searchsorted(edges, values, side="right")
    num_classes = len(labels.classes)
    counts = np.bincount(
        groups * num_classes + wanted.astype(np.int64),
        minlength=(int(groups.max()) + 1) * num_classes,
    ).reshape(-1, num_classes)
    most = int(counts.sum(axis=0).argmax())
    right = np.where(counts.sum(axis=1) >= MIN_ROWS, counts.max(axis=1), counts[:, most]).sum()
    guessed = counts[:, most].sum()
    return bool(len(wanted) > guessed and (right - guessed) / (len(wanted) - guessed) >= NEARLY)


def label_remarks(table: Table, labels: LabelEncoding) -> Iterator[Remark]:
    """Say which classes may be one or are rare, and whether amounts could be meant otherwise."""
    if table.labels is not None and table.labels.dtype == pl.String and not labels.classes:
        yield from _in_doubt(table.labels, labels.decimal)
    if not labels.classes or table.labels is None:
        return
    alike: dict[str, list[str]] = {}
    for name in labels.classes:
        alike.setdefault(name.strip().casefold(), []).append(name)
    for together in alike.values():
        if len(together) > 1:
            listed = " and ".join(f'"{name}"' for name in together)
            yield Remark(
                "classes_alike",
                f"{listed} are {len(together)} classes of {len(labels.classes)}: write one class "
                "in one way",
            )
    targets, labelled = labels.apply(table)
    places = targets[labelled & (targets >= 0)].astype(np.int64)
    counts = np.bincount(places, minlength=len(labels.classes))
    rare = [
        f'"{name}" ({num})'
        for name, num in zip(labels.classes, counts.tolist(), strict=True)
        if num < HANDFUL
    ]
    if rare and len(table) >= MIN_ROWS_TO_JUDGE:
        yield Remark("rare_classes", f"classes with few rows are hardly learnt: {_listed(rare)}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
