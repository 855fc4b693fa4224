"""Files of lines that grow: a full one becomes .1, the one before it .2, and the last one goes."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

MAX_BYTES = 10_000_000
NUM_OLD = 5
"""How many full files are kept, as .1 to .5."""


def make_room(path: Path, num_bytes: int, max_bytes: int = MAX_BYTES) -> None:
    """Put a file away if so many bytes more are too many for it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if not size or size + num_bytes <= max_bytes:
        return
    for newer, older in reversed(list(pairwise([path, *_old(path)]))):
        with suppress(FileNotFoundError):
            newer.replace(older)


def all_files(path: Path) -> list[Path]:
    """Return the files in which the lines are, the oldest first."""
    return [file for file in (*reversed(_old(path)), path) if file.exists()]


def _old(path: Path) -> Sequence[Path]:
    return [path.with_name(f"{path.name}.{number}") for number in range(1, NUM_OLD + 1)]
