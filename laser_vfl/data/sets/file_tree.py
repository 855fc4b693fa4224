"""The official files of a data set, in a folder or in an archive that is read where it is."""

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Protocol, Self

import polars as pl

from laser_vfl.core.errors import DataError


class Tree(AbstractContextManager["Tree"], Protocol):
    """Files by their names in the official layout, wherever the layout begins."""

    path: Path

    def has(self, name: str) -> bool: ...
    def open(self, name: str) -> IO[bytes]:
        """Open a file; a DataError when it is not there."""
        ...

    def inside(self, folder: str) -> list[str]:
        """Return the names of the files of a folder, sorted."""
        ...


def open_tree(path: Path, markers: Sequence[str]) -> Tree:
    """Open a folder or an archive that holds one of the markers."""
    if path.is_dir():
        return _Folder(path)
    with readable(path):
        archive = _Zip(path) if zipfile.is_zipfile(path) else _Tar(path)
    if not archive.begin_at(markers):
        archive.close()
        raise DataError(
            f"there is no {markers[0]} in this archive", hint="get it again", where=str(path)
        )
    return archive


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into a DataError."""
    try:
        yield
    except (
        pl.exceptions.PolarsError,
        OSError,
        EOFError,
        KeyError,
        ValueError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        said = next(iter(str(error).splitlines()), "")[:200]
        raise DataError(
            f"cannot be read ({type(error).__name__}: {said})",
            hint="check that the file is complete and of the layout in docs/data.md",
            where=str(path),
        ) from error


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        if not self.has(name):
            raise _missing(name, self.path)
        return (self.path / name).open("rb")

    def inside(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{path.name}" for path in (self.path / folder).glob("*"))


class _Archive:
    """What zip and tar have in common: members by name, below where the layout begins."""

    def __init__(self, path: Path, members: Sequence[str]) -> None:
        self.path = path
        self._members = {name.removeprefix("./"): name for name in members}
        self._start = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_at(self, markers: Sequence[str]) -> bool:
        """Let names begin where one of the markers is; False when none is there."""
        for name in self._members:
            for marker in markers:
                start = name.removesuffix(marker)
                if start != name and (not start or start.endswith("/")):
                    self._start = start
                    return True
        return False

    def has(self, name: str) -> bool:
        return self._start + name in self._members

    def open(self, name: str) -> IO[bytes]:
        if not self.has(name):
            raise _missing(name, self.path)
        return self._open(self._members[self._start + name])

    def inside(self, folder: str) -> list[str]:
        start = f"{self._start}{folder}/"
        found = (name for name in self._members if name.startswith(start))
        return sorted(name.removeprefix(self._start) for name in found if name != start)

    def _open(self, member: str) -> IO[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Zip(_Archive):
    def __init__(self, path: Path) -> None:
        self._file = zipfile.ZipFile(path)
        super().__init__(path, self._file.namelist())

    def _open(self, member: str) -> IO[bytes]:
        return self._file.open(member)

    def close(self) -> None:
        self._file.close()


class _Tar(_Archive):
    def __init__(self, path: Path) -> None:
        self._file = tarfile.open(path)  # noqa: SIM115
        super().__init__(path, self._file.getnames())

    def _open(self, member: str) -> IO[bytes]:
        return self._file.extractfile(member) or io.BytesIO()

    def close(self) -> None:
        self._file.close()


def _missing(name: str, path: Path) -> DataError:
    return DataError(
        f"there is no {name} in it",
        hint="get the whole data set; docs/data.md says which files it has",
        where=str(path),
    )
