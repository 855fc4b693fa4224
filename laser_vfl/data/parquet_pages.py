"""What the pages of a Parquet file say of themselves, checked before polars believes it.

Before each page stands how many values it has. polars makes room for as many at once, and ends the
whole process if there is none, as where one damaged byte has made the number negative.
"""

import mmap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""The length of the footer, and the magic bytes again."""

# The numbers of fields, from the specification of Parquet (parquet.thrift).
_ROW_GROUPS = 4
_COLUMNS = 1
_COLUMN_METADATA = 3
_PATH, _NUM_VALUES, _TOTAL_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 5, 7, 9, 11
_BYTES, _COMPRESSED_BYTES = 2, 3
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 5, 7, 8
_NUM_PAGE_VALUES = 1

_MAX_DEPTH = 20
_DAMAGED = "what it says of itself is damaged"


def check_pages(path: Path, columns: Collection[str]) -> None:
    """Raise ValueError unless the pages of these columns have the values that the footer counts."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if len(data) < _TAIL_BYTES or data[-4:] != _MAGIC:
            return  # which polars says better
        length = int.from_bytes(data[-_TAIL_BYTES:-4], "little")
        footer = data[max(0, len(data) - _TAIL_BYTES - length) : -_TAIL_BYTES]
        try:
            for about in _chunks(footer):
                if about[_PATH][0].decode(errors="replace") in columns:
                    _check_chunk(data, about)
        except (AttributeError, IndexError, KeyError, TypeError):  # a field of another type
            raise ValueError(_DAMAGED) from None


def _chunks(footer: bytes) -> Iterator[dict[int, Any]]:
    """Return what the footer says of each column in each group of rows."""
    for group in _Compact(footer, 0).struct()[_ROW_GROUPS]:
        for chunk in group[_COLUMNS]:
            yield chunk[_COLUMN_METADATA]


def _check_chunk(data: mmap.mmap, about: dict[int, Any]) -> None:
    # Some writers say that the dictionary is at 0 where there is none.
    at = about.get(_DICTIONARY_OFFSET) or about[_DATA_OFFSET]
    end = at + about[_TOTAL_BYTES]
    missing = about[_NUM_VALUES]
    if not 0 <= at <= end <= len(data):
        raise ValueError("a column is said to be outside of the file")
    while missing > 0 and at < end:
        header = _Compact(data, at)
        page = header.struct()
        size = page[_COMPRESSED_BYTES]
        at = header.at + size
        values = page.get(_DATA_PAGE, page.get(_DATA_PAGE_V2, {})).get(_NUM_PAGE_VALUES, 0)
        known = page.get(_DICTIONARY_PAGE, {}).get(_NUM_PAGE_VALUES, 0)
        missing -= values
        # Each value of a dictionary takes a byte, if not more.
        if not 0 <= known <= page[_BYTES] or values < 0 or missing < 0 or size < 0 or at > end:
            raise ValueError("a page does not have as many values as the file says")


class _Compact:
    """Reads Thrift's compact protocol: structs as dicts by the number of the field."""

    def __init__(self, data: bytes | mmap.mmap, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._signed()
            is_boolean = kind & 15 in (1, 2)  # whose value is its type
            fields[number] = kind & 15 == 1 if is_boolean else self._value(kind & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # a boolean in a list, a byte
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10 if depth < _MAX_DEPTH:
                return self._list(depth + 1)
            case 12 if depth < _MAX_DEPTH:
                return self.struct(depth + 1)
        raise ValueError(_DAMAGED)

    def _list(self, depth: int) -> list[Any]:
        first = self._byte()
        num = first >> 4 if first >> 4 < 15 else self._unsigned()
        if num > len(self._data) - self.at:
            raise ValueError(_DAMAGED)
        return [self._value(first & 15, depth) for _ in range(num)]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, num: int) -> bytes:
        found = self._data[self.at : self.at + num]
        if len(found) < num:
            raise ValueError("what it says of itself is cut off")
        self.at += num
        return found

    def _unsigned(self) -> int:
        number = shift = 0
        while shift < 70:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
        raise ValueError(_DAMAGED)

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)
