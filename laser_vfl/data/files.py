"""Reads CSV, Parquet and NPZ files; whatever is wrong with a file becomes a DataError."""

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.parquet_pages import check_pages

SAVE_AS_UTF8: Final = "save it as UTF-8"
SEPARATE_WITH_COMMAS: Final = "separate the columns with commas"
MAX_HEADER: Final = 65_536


def read_csv(path: Path, num_rows: int | None = None) -> pl.DataFrame:
    """Return every column as text, of all rows or of the first ones.

    What a column holds is decided once, when an encoding is fitted.
    Guessing per file would lose the zeros of "007" in a file where it happens to look like a
    number, and keep them in the next.
    """
    with _readable(path, "CSV"):
        frame = pl.read_csv(path, infer_schema=False, glob=False, n_rows=num_rows)
    for name in frame.columns:
        if "\ufffd" in name:  # what polars makes of other bytes in the header
            raise DataError("its header is not UTF-8", hint=SAVE_AS_UTF8, where=str(path))
        original = re.sub(r"_duplicated_\d+$", "", name)
        if original != name and original in frame.columns:
            raise DataError(
                f'two columns are called "{original}"',
                hint="give every column its own name",
                where=str(path),
            )
    return frame


def read_parquet_names(path: Path) -> tuple[str, ...]:
    with _readable(path, "Parquet"):
        return tuple(pl.read_parquet_schema(path))


def read_parquet(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    with _readable(path, "Parquet"):
        check_pages(path, columns)
        return pl.read_parquet(path, columns=list(columns), glob=False, hive_partitioning=False)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""How the header of an array is read, by the version of its format."""


class NpzFile:
    """Return named arrays; only those that are wanted are read, and pickles never."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path, "NPZ"):
            # zipfile first: numpy would take other formats under this suffix for what they are.
            with zipfile.ZipFile(path):
                pass
            self._arrays = np.load(path, allow_pickle=False)
            self.names: tuple[str, ...] = tuple(self._arrays.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._arrays.close()

    def read_column(self, name: str) -> npt.NDArray[Any]:
        array = self._read(name)
        if array.ndim != 1:
            raise DataError(
                f'array "{name}" has shape {array.shape}',
                hint="save it with one value per row",
                where=str(self.path),
            )
        return array

    def read_labels(self, name: str) -> pl.Series:
        array = self.read_column(name)
        if array.dtype.kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError:
                raise self._unsupported(name, "bytes that are not UTF-8") from None
        elif array.dtype == np.float16:
            array = array.astype(np.float32)
        if array.dtype.kind not in "biufU":
            raise self._unsupported(name, str(array.dtype))
        return pl.Series(name, array)

    def read_block(self, name: str) -> npt.NDArray[Any]:
        array = self._read(name)
        if array.dtype.kind not in "biuf":
            raise self._unsupported(name, str(array.dtype))
        if array.ndim == 0 or 0 in array.shape[1:]:
            raise DataError(
                f'array "{name}" has shape {array.shape}',
                hint="a feature block has the shape (rows, features), or more dimensions",
                where=str(self.path),
            )
        return array.reshape(-1, 1) if array.ndim == 1 else array

    def _read(self, name: str) -> npt.NDArray[Any]:
        with _readable(self.path, "NPZ"):
            if self._holds_objects(name):
                raise self._unsupported(name, "pickled objects")
            array: npt.NDArray[Any] = self._arrays[name]
        return array

    def _holds_objects(self, name: str) -> bool:
        """Whether an array is pickled, by the type in its header; numpy refuses to read it."""
        archive = self._arrays.zip
        with archive.open(name if name in archive.namelist() else f"{name}.npy") as file:
            read_header = _HEADERS.get(np.lib.format.read_magic(file))
            return read_header is not None and bool(read_header(file)[2].hasobject)

    def _unsupported(self, name: str, what: str) -> DataError:
        return DataError(
            f'array "{name}" holds {what}',
            hint="save it as numbers, booleans or text (dtype U), or leave it out with `exclude`",
            where=str(self.path),
        )


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except pl.exceptions.NoDataError:
        raise DataError(
            "the file is empty", hint="add a header and rows", where=str(path)
        ) from None
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(
            f"cannot be read as {what}: {_reason(error)}",
            hint=_hint(path, what, error),
            where=str(path),
        ) from error


def _hint(path: Path, what: str, error: BaseException) -> str:
    """Say what to do about a file that a library has not read."""
    if what == "CSV":
        try:
            with path.open("rb") as file:
                header = file.readline(MAX_HEADER)
        except OSError:
            header = b""
        if "utf-8" in str(error).lower() or header.startswith((b"\xff\xfe", b"\xfe\xff")):
            return SAVE_AS_UTF8
        if b"," not in header and re.search(rb"[;\t|]", header):
            return SEPARATE_WITH_COMMAS
    return "check that the file is complete and that its suffix tells its format"


# polars has no codes for what is wrong with a file, and quotes values of it between backticks. Its
# words are read here only, to explain an error; one that quotes nothing is shown as it is.


def _reason(error: BaseException) -> str:
    """Return what a library says of a file, without the values that it may quote."""
    text = str(error)
    if "`" not in text:
        return next(iter(text.splitlines()), type(error).__name__)
    column = re.search(r"at column '([^'\n]*)'", text)
    place = f' in column "{column[1]}"' if column else ""
    return f"a field{place} is not properly quoted, or not of the column's type"
