"""The encoding of a feature block: fitted on training rows, kept as JSON, applied unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.core.table_form import TableForm
from laser_vfl.data.columns.category_column import CategoryColumn
from laser_vfl.data.columns.column_rules import (
    ColumnEncoding,
    OmittedColumn,
    column_from_json,
    fit_column,
)
from laser_vfl.data.columns.column_spec import NO_SPEC, ColumnSpec
from laser_vfl.data.columns.earlier_columns import Category, earlier_from_json, fit_earlier
from laser_vfl.data.columns.moment_column import MomentColumn
from laser_vfl.data.columns.number_column import NumberColumn
from laser_vfl.data.standardisation import Standardisation, first_infinite_row
from laser_vfl.data.tables import Table, require_excluded, require_names

VERSION = 2
"""How tables are encoded from now on."""
EARLIER_VERSION = 1
"""How release 0.1.0 did; it wrote no version."""

NUM_EDGES = 33
MAX_WITH_EDGES = 1000
"""An array with more features than this has no quantiles of them in its manifest."""
ROWS_FOR_EDGES = 100_000

Edges = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Encoding:
    """Turns the raw features of a table into the float32 block that models read."""

    block: "_Columns | _Array"

    @classmethod
    def fit(cls, table: Table, version: int = VERSION) -> "Encoding":
        """Learn how to encode a table; an earlier `version` does as its release did."""
        require_excluded(table.path, table.spec, table.names)
        if isinstance(table.features, pl.DataFrame):
            return cls(_Columns.fit(table.features, table, version))
        return cls(_Array.fit(table, version))

    def apply(self, table: Table) -> npt.NDArray[np.float32]:
        """Return the block, (rows, *row_shape), C-contiguous."""
        return self.block.apply(table)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row in memory."""
        return self.block.row_shape

    @property
    def form(self) -> TableForm | None:
        """Where a row has its numbers and codes; None for a row of several dimensions."""
        return self.block.form

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a row for a model that takes categories one-hot."""
        return self.row_shape if self.form is None else (self.form.flat_width,)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The features of a table that are used, in their order; None for an array."""
        return self.block.column_names

    @property
    def unused_columns(self) -> tuple[str, ...]:
        """The features of the training table that were left out."""
        return tuple(column.name for column in self.columns if not column.order)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text or times, which an array of numbers cannot have."""
        return self.block.text_columns

    @property
    def comma_columns(self) -> tuple[str, ...]:
        """The columns whose numbers had a decimal comma in training."""
        numbers = [column for column in self.columns if isinstance(column, NumberColumn)]
        return tuple(column.name for column in numbers if column.decimal == ",")

    @property
    def columns(self) -> tuple[ColumnEncoding, ...]:
        """How each column of a table is encoded, also those left out; empty for an array."""
        return self.block.columns

    def to_json(self) -> dict[str, Any]:
        return self.block.to_json()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Encoding":
        try:
            if stored["block"] == "columns":
                return cls(_Columns.from_json(stored))
            return cls(_Array.from_json(stored))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"the stored encoding cannot be read ({type(error).__name__})",
                hint="train again, or restore the file that was written with the model",
            ) from error


@dataclass(frozen=True)
class _Columns:
    columns: tuple[ColumnEncoding, ...]
    version: int = VERSION
    edges: Edges = ()

    @classmethod
    def fit(cls, frame: pl.DataFrame, table: Table, version: int) -> "_Columns":
        spec, untyped, path = table.spec, table.untyped, table.path
        if version == EARLIER_VERSION:
            return cls(
                tuple(
                    fit_earlier(column, untyped=untyped, path=path, scaling=spec.scaling)
                    for column in frame.iter_columns()
                ),
                version,
            )
        require_names(spec.columns, frame.columns, path, "feature column for `data.columns`:")
        asked = dict.fromkeys(spec.features or (), NO_SPEC) | dict(spec.columns)

        def fitted(column: pl.Series, wanted: ColumnSpec | None) -> ColumnEncoding:
            return fit_column(column, untyped=untyped, path=path, scaling=spec.scaling, spec=wanted)

        columns = [fitted(column, asked.get(column.name)) for column in frame.iter_columns()]
        if not any(column.order for column in columns):  # then row numbers are better than nothing
            counting = {c.name for c in columns if isinstance(c, OmittedColumn) and c.is_number}
            columns = [fitted(frame[c.name], NO_SPEC) if c.name in counting else c for c in columns]
        block = cls(tuple(columns))
        if not block.form.width:
            raise _nothing_left(block.columns, path)
        some = table.sample(ROWS_FOR_EDGES)
        return replace(block, edges=_edges(block.apply(some)[:, : block.form.num_numbers]))

    @cached_property
    def form(self) -> TableForm:
        order = tuple(part for column in self.columns for part in column.order)
        return TableForm(order, self.edges)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.form.width,)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        return tuple(column.name for column in self.columns if column.order)

    @property
    def text_columns(self) -> tuple[str, ...]:
        others = Category | CategoryColumn | MomentColumn
        return tuple(column.name for column in self.columns if isinstance(column, others))

    def apply(self, table: Table) -> npt.NDArray[np.float32]:
        frame = table.features
        if not isinstance(frame, pl.DataFrame):
            raise _other_form(table.path, "an array", "columns")
        used = [column for column in self.columns if column.order]
        names = [column.name for column in used]
        require_names(names, frame.columns, table.path, "feature column")
        out = np.zeros((len(table), *self.row_shape), dtype=np.float32)
        number, code = 0, self.form.num_numbers
        for column in used:
            if any(column.order):
                column.write(frame[column.name], out[:, code : code + 1], table.path)
                code += 1
            else:
                stop = number + len(column.order)
                column.write(frame[column.name], out[:, number:stop], table.path)
                number = stop
        return out

    def to_json(self) -> dict[str, Any]:
        columns = [column.to_json() for column in self.columns]
        if self.version == EARLIER_VERSION:
            return {"block": "columns", "columns": columns}
        edges = [list(part) for part in self.edges]
        return {"block": "columns", "version": self.version, "columns": columns, "edges": edges}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "_Columns":
        version = int(stored.get("version", EARLIER_VERSION))
        if version == EARLIER_VERSION:
            return cls(tuple(map(earlier_from_json, stored["columns"])), version)
        if version != VERSION:
            raise ValueError("another release wrote it")
        block = cls(tuple(map(column_from_json, stored["columns"])), version)
        return replace(block, edges=_edges_from_json(stored["edges"], block.form.num_numbers))


@dataclass(frozen=True, eq=False)
class _Array:
    """An array block: (n, f) by column, (n, t, f) by feature, (n, c, h, w) by channel."""

    row_shape: tuple[int, ...]
    standard: Standardisation
    version: int = EARLIER_VERSION
    edges: Edges = ()
    column_names: None = None
    text_columns: tuple[()] = ()
    columns: tuple[()] = ()

    @cached_property
    def form(self) -> TableForm | None:
        if len(self.row_shape) > 1:
            return None
        return TableForm.of_numbers(self.row_shape[0], self.edges)

    @classmethod
    def fit(cls, table: Table, version: int) -> "_Array":
        array, path, scaling = table.features, table.path, table.spec.scaling
        assert isinstance(array, np.ndarray)
        if version != EARLIER_VERSION and (scaling == "quantile" or table.spec.columns):
            key = "columns" if table.spec.columns else "scaling: quantile"
            raise DataError(
                f"data.{key} is for tables with columns, and this is an array",
                hint="take it out, or save the table as CSV or Parquet",
                where=str(path),
            )
        _refuse_infinite(array, path)
        axis = 2 if array.ndim == 3 else 1
        if scaling == "none":
            standard = Standardisation.as_is(array.shape[axis], axis)
        else:
            standard = Standardisation.fit(array, axis)
        if version == EARLIER_VERSION or array.ndim != 2 or array.shape[1] > MAX_WITH_EDGES:
            return cls(array.shape[1:], standard)
        some = table.sample(ROWS_FOR_EDGES).features
        assert isinstance(some, np.ndarray)
        return cls(array.shape[1:], standard, version, _edges(standard.apply(some)))

    def apply(self, table: Table) -> npt.NDArray[np.float32]:
        array = table.features
        if isinstance(array, pl.DataFrame):
            raise _other_form(table.path, "columns", "an array")
        if array.shape[1:] != self.row_shape:
            raise DataError(
                f"a row has the shape {array.shape[1:]}, in training it was {self.row_shape}",
                hint="save the block as it was for training",
                where=str(table.path),
            )
        _refuse_infinite(array, table.path)
        return self.standard.apply(array)

    def to_json(self) -> dict[str, Any]:
        stored = {
            "block": "array",
            "input_shape": list(self.row_shape),
            "axis": self.standard.axis,
            "mean": self.standard.mean.tolist(),
            "deviation": self.standard.deviation.tolist(),
        }
        if self.version == EARLIER_VERSION:
            return stored
        return {**stored, "version": self.version, "edges": [list(part) for part in self.edges]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "_Array":
        shape = tuple(map(int, stored["input_shape"]))
        axis = int(stored["axis"])
        mean = np.array(stored["mean"], dtype=np.float64)
        deviation = np.array(stored["deviation"], dtype=np.float64)
        if not 1 <= axis <= len(shape) or {mean.shape, deviation.shape} != {(shape[axis - 1],)}:
            raise ValueError("the statistics do not fit the shape")
        standard, version = (
            Standardisation(axis, mean, deviation),
            int(stored.get("version", EARLIER_VERSION)),
        )
        if version == EARLIER_VERSION:
            return cls(shape, standard)
        if version != VERSION or len(shape) != 1:
            raise ValueError("another release wrote it")
        return cls(shape, standard, version, _edges_from_json(stored["edges"], shape[0]))


def _edges(numbers: npt.NDArray[np.float32]) -> Edges:
    """Return the different ones of 33 quantiles of each number; none where it does not vary."""
    if not len(numbers):
        return ((),) * int(numbers.shape[1])
    grid = np.linspace(0, 1, NUM_EDGES)
    quantiles = np.quantile(numbers, grid, axis=0, method="nearest")
    different: list[tuple[float, ...]] = [
        tuple(map(float, np.unique(part))) for part in quantiles.T
    ]
    return tuple(part if len(part) > 1 else () for part in different)


def _edges_from_json(stored: Any, num_numbers: int) -> Edges:
    edges: Edges = tuple(tuple(map(float, part)) for part in stored)
    rises = all(one < other for part in edges for one, other in pairwise(part))
    if len(edges) != num_numbers or not rises or any(len(part) == 1 for part in edges):
        raise ValueError("the quantiles do not fit the numbers")
    return edges


def _nothing_left(columns: tuple[ColumnEncoding, ...], path: Path) -> DataError:
    left_out = [c for c in columns if isinstance(c, OmittedColumn)]
    listed = ", ".join(f'"{c.name}" ({c.reason})' for c in left_out[:5])
    more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
    return DataError(
        f"no column is left to learn from: {listed}{more}",
        hint="ask for a column in data.columns, such as {type: category}, or add features",
        where=str(path),
    )


def _refuse_infinite(array: npt.NDArray[Any], path: Path) -> None:
    row = first_infinite_row(array)
    if row is not None:
        raise DataError(
            f"the feature array is infinite in row {row + 1}",
            hint="correct the value, or use NaN where it is not known",
            where=str(path),
        )


def _other_form(path: Path, here: str, trained: str) -> DataError:
    return DataError(
        f"the features are {here}, in training they were {trained}",
        hint="use one format for the training and the test table",
        where=str(path),
    )
