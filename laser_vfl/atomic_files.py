"""Files that are either the old one or the new one, also after a crash; and how to see a change."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

Part = bytes | memoryview

Stamp = tuple[int, int, int, int]
"""What changes when somebody replaces or writes a file, or changes who may read it."""


@dataclass(frozen=True)
class NewFile:
    """What is to be written where, and who may read it."""

    path: Path
    parts: Sequence[Part]
    mode: int = 0o666
    """As for `open`: the umask applies, unless `keeps_readers`."""
    keeps_readers: bool = False
    """Whether its owner, and its group's right to read, stay those of the file before."""
    put_away: Path | None = None
    """Where the file before goes, in the same directory; None if nobody needs it."""


def replace_file(path: Path, *parts: Part, mode: int = 0o666) -> None:
    """Write a file and put it in the place of the old one, if there is one."""
    replace_files([NewFile(path, parts, mode)])


def replace_files(files: Sequence[NewFile]) -> None:
    """Put files in place one right after the other, when all of them are safely on disk."""
    temporaries = [_beside(file.path) for file in files]
    try:
        for file, temporary in zip(files, temporaries, strict=True):
            _write(file, temporary)
        for file, temporary in zip(files, temporaries, strict=True):
            if file.put_away is not None:
                file.path.replace(file.put_away)
            temporary.replace(file.path)
    except BaseException:
        for temporary in temporaries:
            _remove(temporary)
        raise
    for directory in dict.fromkeys(file.path.parent for file in files):
        sync_directory(directory)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of an empty file to write to, and put it in place when it is complete."""
    if path.is_dir():
        raise IsADirectoryError(None, "it is a directory")
    temporary = _beside(path)
    try:
        temporary.touch()
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        _remove(temporary)
        raise
    sync_directory(path.parent)


def replace_link(path: Path, target: Path) -> None:
    """Make a symbolic link, in the place of the old one, if there is one."""
    temporary = _beside(path)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
    sync_directory(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file for good, if it is there."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make what was renamed or removed in a directory last."""
    _sync(directory)


def remove_leftovers(directory: Path) -> None:
    """Remove what a process that was killed has not finished writing."""
    with suppress(OSError):
        for temporary in directory.glob(".*.tmp"):
            _remove(temporary)


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _beside(path: Path) -> Path:
    """Return where a file is written first; two processes that write the same one do not meet."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _write(file: NewFile, temporary: Path) -> None:
    temporary.unlink(missing_ok=True)  # of a process with the same number that was killed
    mode = 0o600 if file.keeps_readers else file.mode
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        if file.keeps_readers:
            _give_to_readers(descriptor, file)
        for part in file.parts:
            stream.write(part)
        stream.flush()
        os.fsync(descriptor)


def _give_to_readers(descriptor: int, file: NewFile) -> None:
    """Let those read a file who could read the one before; it starts as readable to nobody else.

    A daemon may run as another user than the one who renews its certificate.
    """
    mode = file.mode
    with suppress(FileNotFoundError, PermissionError):
        before = file.path.stat()
        os.fchown(descriptor, before.st_uid, before.st_gid)
        mode |= stat.S_IMODE(before.st_mode) & stat.S_IRGRP
    os.fchmod(descriptor, mode)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
