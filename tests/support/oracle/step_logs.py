"""The steps that a client noted, read as a whole; a daemon reads only the end of its own log."""

from pathlib import Path

from laser_vfl.client.storage.step_log import read_entry
from laser_vfl.core.errors import DataError
from laser_vfl.core.training.applied_steps import Entry


def read_log(path: Path) -> list[Entry]:
    """Return all that was noted; half a line at the end is left out."""
    try:
        lines = path.read_bytes().decode("ascii", "replace").split("\n")
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror})", where=str(path)) from None
    return [read_entry(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], start=1)]
