"""The ids in a CSV file of any length, in batches; errors name the line."""

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from laser_vfl.core.errors import DataError, quoted

NUM_IDS_PER_REQUEST = 1_000
MAX_LINE_BYTES = 1 << 20


@contextmanager
def open_ids(path: Path) -> Iterator[IO[bytes]]:
    """Open the file of ids."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", where=str(path), hint="check --ids"
        ) from None
    with file:
        yield file


def read_ids(file: IO[bytes], path: Path, column: str = "id") -> Iterator[str]:
    """Yield the ids of a CSV file. Blank lines are no rows.

    They are in its only column, or in the one called as `column` says, or "id".
    """
    rows = csv.reader(_text_lines(file, path), strict=True)
    place, header = 0, None
    try:
        for row in rows:
            if header is None:
                header, place = row, _id_place(row, path, column)
            elif len(row) == len(header):
                yield row[place]
            elif row:
                raise DataError(
                    f"this row has {len(row)} fields, the header has {len(header)}",
                    hint="quote fields that contain a comma",
                    where=f"{path}:{rows.line_num}",
                )
    except csv.Error as error:
        raise DataError(
            f"this line is not CSV: {error}",
            hint="check its quotes",
            where=f"{path}:{rows.line_num}",
        ) from None
    if header is None:
        raise DataError("the file is empty", hint='write a header "id" and ids', where=str(path))


def _text_lines(file: IO[bytes], path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        where = f"{path}:{number}"
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) == MAX_LINE_BYTES:
            raise DataError("this line is too long", hint="is it a CSV file?", where=where)
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise DataError(
                "this line is not UTF-8", hint="save it as UTF-8", where=where
            ) from None


def _id_place(header: list[str], path: Path, column: str) -> int:
    names = [name.strip() for name in header]
    where = f"{path}:1"
    hint = 'write a header "id" before the ids'
    if not any(names) or (len(names) == 1 and names[0].isdecimal()):
        raise DataError("there is no header", hint=hint, where=where)
    if len(names) == 1 and re.search(r"[;\t]", names[0]):
        raise DataError(
            f"{quoted(names[0])} looks like many columns", hint="use commas", where=where
        )
    if len(names) == 1:
        return 0
    name = column if column in names else "id"
    if names.count(name) != 1:
        wanted = " or ".join(quoted(one) for one in dict.fromkeys((column, "id")))
        found = f"{names.count(name)} columns are called {quoted(name)}"
        if name not in names:
            found = f"no column is called {wanted}"
        raise DataError(found, hint="one has to be", where=where)
    return names.index(name)


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in requests."""
    ids = iter(ids)
    while batch := list(islice(ids, NUM_IDS_PER_REQUEST)):
        yield batch
