"""Files that are either the old one or the new one, also after a crash; never half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laser_vfl.core.errors import TrainingStopped

Part = bytes | memoryview

Stamp = tuple[int, int, int]
"""What changes when somebody writes a file."""

_HINT = "free some space or make the state directory writable, then start again"


@contextmanager
def writing(path: Path, hint: str = _HINT) -> Iterator[None]:
    """Say in plain words that a file cannot be written.

    Its directory is left to `where`: a message may be this client's farewell, which all hear.
    """
    try:
        yield
    except OSError as error:
        raise TrainingStopped(
            f"{path.name} cannot be written ({error.strerror or type(error).__name__})",
            where=str(path.parent),
            hint=hint,
        ) from None


def replace(path: Path, *parts: Part, mode: int = 0o666, hint: str = _HINT) -> None:
    """Write a file and put it in the place of the old one, if there is one."""
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path, hint):
        temporary.unlink(missing_ok=True)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make what was renamed or removed in a directory last."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(directory: Path) -> None:
    """Remove what a process that was killed has not finished writing."""
    with suppress(OSError):
        for temporary in directory.glob(".*.tmp"):
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
