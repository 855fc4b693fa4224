"""Keys and certificates on disk: whole, readable only to whom they concern, changed together."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from laser_vfl.atomic_files import NewFile, replace_files
from laser_vfl.core.errors import ConfigError, IdentityError

PRIVATE = 0o600
PUBLIC = 0o644


def new_file(path: Path, content: bytes, mode: int) -> NewFile:
    """Return a file to write that those may read who could read the one before."""
    return NewFile(path, (content,), mode, keeps_readers=True)


def write_together(files: Sequence[NewFile]) -> None:
    """Put files in place one right after the other, when all of them are safely on disk.

    A key comes before its certificate, and a daemon that watches both sees the two change at
    nearly the same time.
    """
    try:
        for directory in {file.path.parent for file in files}:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_files(files)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})",
            where=str(files[0].path),
            hint="check the directory and who may write to it",
        ) from None


def refuse_existing(paths: Iterable[Path], hint: str) -> None:
    """Refuse to write where something is already."""
    for path in paths:
        if path.exists():
            raise IdentityError("is there already", where=str(path), hint=hint)
