"""Files of the state directory: written whole, with an error in plain words when they cannot be."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laser_vfl.atomic_files import Part, replace_file
from laser_vfl.core.errors import StateUnwritable
from laser_vfl.private_files import FILE_MODE

DEFAULT_HINT = "free some space or make the state directory writable, then start again"


@contextmanager
def writing(path: Path, hint: str = DEFAULT_HINT) -> Iterator[None]:
    """Say in plain words that a file cannot be written.

    The message has no directory, which is in `where`: a message may be shown to others.
    """
    try:
        yield
    except OSError as error:
        raise StateUnwritable(
            f"{path.name} cannot be written ({error.strerror or type(error).__name__})",
            where=str(path.parent),
            hint=hint,
        ) from None


def replace(path: Path, *parts: Part, hint: str = DEFAULT_HINT) -> None:
    """Write a private file and put it in the place of the old one, if there is one."""
    with writing(path, hint):
        replace_file(path, *parts, mode=FILE_MODE)


def read_json(path: Path) -> Any:
    """Return a document; raises OSError, or ValueError for one that cannot be used.

    JSON can name halves of characters, which cannot be written or sent again.
    """
    try:
        document = json.loads(path.read_bytes())
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document
