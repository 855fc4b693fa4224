"""The encoding of a feature block: fitted on training rows, kept as JSON, applied unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.core.table_form import TableForm
from laser_vfl.data.columns import Category, ColumnEncoding, column_from_json, fit_column
from laser_vfl.data.standardisation import Standardisation, first_infinite_row
from laser_vfl.data.tables import Table, require_excluded, require_names


@dataclass(frozen=True, eq=False)
class Encoding:
    """Turns the raw features of a table into the float32 block that models read."""

    block: "_Columns | _Array"

    @classmethod
    def fit(cls, table: Table) -> "Encoding":
        require_excluded(table.path, table.spec, table.names)
        if isinstance(table.features, pl.DataFrame):
            return cls(_Columns.fit(table.features, table))
        return cls(_Array.fit(table.features, table.path, table.spec.scaling))

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
        """The features of a table in the order of the encoding; None for an array."""
        return self.block.column_names

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text."""
        return self.block.text_columns

    def to_json(self) -> dict[str, Any]:
        return self.block.to_json()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Encoding":
        try:
            if stored["block"] == "columns":
                return cls(_Columns(tuple(map(column_from_json, stored["columns"]))))
            return cls(_Array.from_json(stored))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"the stored encoding cannot be read ({type(error).__name__})",
                hint="train again, or restore the file that was written with the model",
            ) from error


@dataclass(frozen=True)
class _Columns:
    columns: tuple[ColumnEncoding, ...]

    @classmethod
    def fit(cls, frame: pl.DataFrame, table: Table) -> "_Columns":
        return cls(
            tuple(
                fit_column(
                    column, untyped=table.untyped, path=table.path, scaling=table.spec.scaling
                )
                for column in frame.iter_columns()
            )
        )

    @cached_property
    def form(self) -> TableForm:
        return TableForm(tuple(part for column in self.columns for part in column.order))

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.form.width,)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        return tuple(column.name for column in self.columns)

    @property
    def text_columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if isinstance(column, Category))

    def apply(self, table: Table) -> npt.NDArray[np.float32]:
        frame = table.features
        if not isinstance(frame, pl.DataFrame):
            raise _other_form(table.path, "an array", "columns")
        names = [column.name for column in self.columns]
        require_names(names, frame.columns, table.path, "feature column")
        out = np.zeros((len(table), *self.row_shape), dtype=np.float32)
        number, code = 0, self.form.num_numbers
        for column in self.columns:
            if any(column.order):
                column.write(frame[column.name], out[:, code : code + 1], table.path)
                code += 1
            else:
                stop = number + len(column.order)
                column.write(frame[column.name], out[:, number:stop], table.path)
                number = stop
        return out

    def to_json(self) -> dict[str, Any]:
        return {"block": "columns", "columns": [column.to_json() for column in self.columns]}


@dataclass(frozen=True, eq=False)
class _Array:
    """An array block: (n, f) by column, (n, t, f) by feature, (n, c, h, w) by channel."""

    row_shape: tuple[int, ...]
    standard: Standardisation
    column_names: None = None
    text_columns: tuple[()] = ()

    @property
    def form(self) -> TableForm | None:
        return TableForm.of_numbers(self.row_shape[0]) if len(self.row_shape) == 1 else None

    @classmethod
    def fit(cls, array: npt.NDArray[Any], path: Path, scaling: str) -> "_Array":
        _refuse_infinite(array, path)
        axis = 2 if array.ndim == 3 else 1
        if scaling == "none":
            return cls(array.shape[1:], Standardisation.as_is(array.shape[axis], axis))
        return cls(array.shape[1:], Standardisation.fit(array, axis))

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
        return {
            "block": "array",
            "input_shape": list(self.row_shape),
            "axis": self.standard.axis,
            "mean": self.standard.mean.tolist(),
            "deviation": self.standard.deviation.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "_Array":
        shape = tuple(map(int, stored["input_shape"]))
        axis = int(stored["axis"])
        mean = np.array(stored["mean"], dtype=np.float64)
        deviation = np.array(stored["deviation"], dtype=np.float64)
        if not 1 <= axis <= len(shape) or {mean.shape, deviation.shape} != {(shape[axis - 1],)}:
            raise ValueError("the statistics do not fit the shape")
        return cls(shape, Standardisation(axis, mean, deviation))


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
