"""A table as the file has it: ids, raw features and raw labels, checked but not encoded."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.columns.column_spec import ColumnSpec
from laser_vfl.data.files import (
    SEPARATE_WITH_COMMAS,
    NpzFile,
    read_csv,
    read_parquet,
    read_parquet_names,
)
from laser_vfl.data.ids import normalise_ids

_NUMBER = re.compile(r"\s*[-+]?\d*\.?\d+([eE][-+]?\d+)?(_duplicated_\d+)?\s*")


@dataclass(frozen=True)
class KnownLabels:
    """What a label can be, as far as that is known without a look at the table."""

    classes: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None
    """Of an amount."""


@dataclass(frozen=True)
class TableSpec:
    """What a client's configuration says about its tables."""

    id: str
    label: str | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    scaling: str = "standard"  # standard | quantile | none
    task: str = "auto"  # auto | multiclass | binary | regression
    class_weights: str = "none"  # none | balanced
    positive: str | None = None  # the positive class of a binary task; default: the last one
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)  # how single ones are read
    known: KnownLabels | None = None  # what may be known of private labels; others are looked at


@dataclass(frozen=True, eq=False)
class Table:
    """One table as it was read. Errors count its rows from 1, the header excluded."""

    path: Path
    spec: TableSpec
    ids: list[str] = field(repr=False)
    names: tuple[str, ...]  # every column (or array) of the file
    features: pl.DataFrame | npt.NDArray[Any] = field(repr=False)  # columns, or one array (n, ...)
    labels: pl.Series | None = field(repr=False)
    untyped: bool  # CSV: everything is text until an encoding says what it holds

    def __len__(self) -> int:
        return len(self.ids)

    def sample(self, most: int) -> "Table":
        """Return this table, or so many of its rows at most, evenly spread."""
        if len(self) <= most:
            return self
        chosen = np.zeros(len(self), dtype=bool)
        chosen[:: -(-len(self) // most)] = True
        return self.part(chosen)

    def part(self, chosen: npt.NDArray[np.bool_]) -> "Table":
        """Return some of the rows."""
        features, labels = self.features, self.labels
        return replace(
            self,
            ids=[self.ids[row] for row in np.flatnonzero(chosen).tolist()],
            features=features.filter(chosen)
            if isinstance(features, pl.DataFrame)
            else features[chosen],
            labels=None if labels is None else labels.filter(chosen),
        )


def read_table(path: Path, spec: TableSpec) -> Table:
    """Read a CSV, Parquet or NPZ file and check everything that needs no encoding."""
    table: Table = _READERS[_suffix(path)](path, spec)
    _check_unique(table)
    return table


def check_header(path: Path, spec: TableSpec) -> int:
    """Check that a file has all columns that it should, without reading its rows.

    Returns how many features it has.
    """
    return len(_choose(path, spec, *_header(path)))


def check_excluded(path: Path, spec: TableSpec) -> None:
    """Refuse an excluded column that a training table does not have: it may be misspelt.

    A test or serving table need not have what is left out of it.
    """
    require_excluded(path, spec, _header(path)[0])


def require_excluded(path: Path, spec: TableSpec, names: Sequence[str]) -> None:
    """Do the same for a file with these names."""
    require_names(spec.exclude, names, path, "column to `exclude`")


def _header(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the names in a file without reading its rows, and what they are names of."""
    match _suffix(path):
        case ".csv":
            return tuple(read_csv(path, num_rows=0).columns), "column"
        case ".parquet":
            return read_parquet_names(path), "column"
        case _:
            with NpzFile(path) as file:
                return file.names, "array"


def _suffix(path: Path) -> str:
    """Return what tells the format of a file that is there."""
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DataError(
            f'cannot tell the format from the suffix "{path.suffix}"',
            hint=f"name the file {', '.join(_READERS)}",
            where=str(path),
        )
    try:
        is_file, is_there = path.is_file(), path.exists()
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", hint="check who may read it", where=str(path)
        ) from None
    if not is_file:
        what = "is not a file" if is_there else "there is no such file"
        raise DataError(what, hint="check `data` in the configuration", where=str(path))
    return suffix


def check_tables_apart(train: Table, test: Table) -> None:
    """Refuse a test table that shares samples with the training table."""
    known = set(train.ids)
    rows = [row for row, name in enumerate(test.ids, start=1) if name in known]
    if rows:
        raise DataError(
            f"{len(rows)} of {len(test)} ids are also in {train.path.name} ({_rows(rows)})",
            hint="a sample is for training or for testing: take it out of one of the tables",
            where=str(test.path),
        )


def _from_csv(path: Path, spec: TableSpec) -> Table:
    frame = read_csv(path)
    names = tuple(frame.columns)
    chosen = _choose(path, spec, names, "column")
    ids = normalise_ids(frame[spec.id], where=str(path))
    # Other tools turn integer ids with a gap into floats; such ids would match no one else's.
    if ids and all(re.fullmatch(r"-?\d+\.0+", name) for name in ids):
        raise DataError(
            f'the ids in "{spec.id}" are floats',
            hint="write them as integers (1234, not 1234.0) or as text",
            where=str(path),
        )
    labels = None if spec.label is None else frame[spec.label]
    return Table(path, spec, ids, names, frame.select(chosen), labels, untyped=True)


def _from_parquet(path: Path, spec: TableSpec) -> Table:
    names = read_parquet_names(path)
    chosen = _choose(path, spec, names, "column")
    wanted = [spec.id, *([] if spec.label is None else [spec.label]), *chosen]
    frame = read_parquet(path, wanted)
    ids = frame[spec.id]
    if isinstance(ids.dtype, pl.Categorical | pl.Enum):
        ids = ids.cast(pl.String)
    labels = None if spec.label is None else frame[spec.label]
    normal = normalise_ids(ids, where=str(path))
    return Table(path, spec, normal, names, frame.select(chosen), labels, untyped=False)


def _from_npz(path: Path, spec: TableSpec) -> Table:
    with NpzFile(path) as file:
        chosen = _choose(path, spec, file.names, "array")
        if len(chosen) != 1:
            raise DataError(
                f"exactly one feature array is needed, there are {len(chosen)}: {_quoted(chosen)}",
                hint="name the one to use in `features`",
                where=str(path),
            )
        ids = normalise_ids(file.read_column(spec.id), where=str(path))
        features = file.read_block(chosen[0])
        labels = None if spec.label is None else file.read_labels(spec.label)
        num_rows = {chosen[0]: len(features)}
        if labels is not None:
            num_rows[labels.name] = len(labels)
        for name, rows in num_rows.items():
            if rows != len(ids):
                raise DataError(
                    f'array "{name}" has {rows} rows but there are {len(ids)} ids',
                    hint="save arrays with one row per id, in the same order",
                    where=str(path),
                )
        return Table(path, spec, ids, file.names, features, labels, untyped=False)


_READERS = {".csv": _from_csv, ".parquet": _from_parquet, ".npz": _from_npz}


def _choose(path: Path, spec: TableSpec, names: tuple[str, ...], what: str) -> list[str]:
    """Return the names of the features; check every name that the configuration mentions."""
    reserved = {spec.id, spec.label}
    require_names([spec.id], names, path, f"id {what}")
    if spec.label is not None:
        require_names([spec.label], names, path, f"label {what}")
    if spec.id == spec.label:
        raise DataError(
            f'"{spec.id}" is both the id and the label',
            hint=f"name another {what} in `data.label`",
            where=str(path),
        )
    if spec.features is not None:
        require_names(spec.features, names, path, f"feature {what}")
        for name in spec.features:
            if name in reserved:
                role = "id" if name == spec.id else "label"
                raise DataError(
                    f'the {role} {what} "{name}" cannot be a feature',
                    hint="take it out of `features`",
                    where=str(path),
                )
    wanted = names if spec.features is None else tuple(dict.fromkeys(spec.features))
    chosen = [name for name in wanted if name not in reserved and name not in spec.exclude]
    if not chosen:
        raise DataError(
            f"no feature {what} is left, the file has {_quoted(names)}",
            hint="check `features` and `exclude`",
            where=str(path),
        )
    return chosen


def require_names(wanted: Iterable[str], names: Sequence[str], path: Path, what: str) -> None:
    """Refuse the first wanted name that the file does not have, with the names that come near."""
    for name in wanted:
        if name in names:
            continue
        near = _near(name, names)
        hint = f"did you mean {_quoted(near)}?" if near else f"the file has {_quoted(names)}"
        if any(_NUMBER.fullmatch(given) for given in names):  # a row, whose values are not shown
            hint = "is its first line a header? it has numbers"
        if len(names) == 1 and re.search(r"[;\t|]", names[0]):
            hint = SEPARATE_WITH_COMMAS
        raise DataError(f'there is no {what} "{name}"', hint=hint, where=str(path))


def _near(wanted: str, names: Sequence[str]) -> list[str]:
    """Return the names that come near, whatever their case."""
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), []).append(name)
    close = difflib.get_close_matches(wanted.casefold(), folded, n=3, cutoff=0.6)
    return [name for one in close for name in folded[one]][:3]


def _check_unique(table: Table) -> None:
    if not table.ids:
        raise DataError("the table has no rows", hint="add some", where=str(table.path))
    first: dict[str, int] = {}
    again = [
        (first[name], row)
        for row, name in enumerate(table.ids, start=1)
        if first.setdefault(name, row) != row
    ]
    if again:
        pairs = ", ".join(f"{one} and {other}" for one, other in again[:3])
        more = f" and {len(again) - 3} more" if len(again) > 3 else ""
        raise DataError(
            f'"{table.spec.id}" has the same id twice in rows {pairs}{more}',
            hint="keep one row per id",
            where=str(table.path),
        )


def _rows(rows: Sequence[int]) -> str:
    some = ", ".join(map(str, rows[:3]))
    return f"row{'s' if len(rows) > 1 else ''} {some}{', ...' if len(rows) > 3 else ''}"


def _quoted(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(f'"{name}"' for name in names[:10]) + more
