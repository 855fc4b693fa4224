"""Keys and certificates on disk: whole, readable only to whom they concern, changed together."""

import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from laser_vfl.core.errors import ConfigError, IdentityError

PRIVATE = 0o600
PUBLIC = 0o644


@dataclass(frozen=True)
class NewFile:
    """What is to be written where, and who may read it."""

    path: Path
    content: bytes
    mode: int


def write_together(files: Sequence[NewFile]) -> None:
    """Put files in place one right after the other, when all of them are safely on disk.

    A key comes before its certificate, and a daemon that watches both sees the two change at
    nearly the same time.
    """
    temporaries: list[Path] = []
    try:
        for directory in {file.path.parent for file in files}:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            descriptor, temporary = tempfile.mkstemp(
                dir=file.path.parent, prefix=f".{file.path.name}.", suffix=".tmp"
            )
            temporaries.append(Path(temporary))
            with os.fdopen(descriptor, "wb") as stream:
                _give_to_readers(descriptor, file)
                stream.write(file.content)
                stream.flush()
                os.fsync(descriptor)
        for file, path in zip(files, temporaries, strict=True):
            path.replace(file.path)
        for directory in {file.path.parent for file in files}:
            _sync_directory(directory)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})",
            where=str(files[0].path),
            hint="check the directory and who may write to it",
        ) from None
    finally:
        for path in temporaries:
            path.unlink(missing_ok=True)


def refuse_existing(paths: Iterable[Path], hint: str) -> None:
    """Refuse to write where something is already."""
    for path in paths:
        if path.exists():
            raise IdentityError("is there already", where=str(path), hint=hint)


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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced, or who may read it; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
