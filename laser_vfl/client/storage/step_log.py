"""A line for every step that a client applied: what it takes to replay a run with failures."""

import logging
import os
import re
from pathlib import Path

from laser_vfl.core.errors import DataError, quoted
from laser_vfl.core.training.applied_steps import Applied, Entry, Loaded

log = logging.getLogger(__name__)

_APPLIED = re.compile(r"(\d{1,19}) (\d{1,19}) ([0-9a-f]{1,16})", re.ASCII)
_LOADED = re.compile(r"loaded (\d{1,19})(?: (\d{1,19}))?", re.ASCII)

END_BYTES = 256
"""Enough for a line that is cut, two of any length, and one that is under way."""


class StepLog:
    """An append-only file. Each line is one write, so a process that is killed loses none.

    When a line cannot be written, no other follows: what the file has stays true.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            content = path.read_bytes()
            os.ftruncate(self._file, content.rfind(b"\n") + 1)
        except OSError as error:
            self._give_up(error)

    def applied(self, step: int, generation: int, participants: int) -> None:
        """Note a step right after it was applied, before its state goes anywhere."""
        self._append(f"{step} {generation} {participants:x}\n")

    def loaded(self, step: int, generation: int | None = None) -> None:
        """Note that the state is now that of a checkpoint, and which view had it first if known."""
        self._append(f"loaded {step}\n" if generation is None else f"loaded {step} {generation}\n")

    def close(self) -> None:
        """Close the file; nothing more is noted."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _append(self, text: str) -> None:
        if self._file is None:
            return
        line = text.encode()
        try:
            num_written = os.write(self._file, line)
            if num_written < len(line):
                os.ftruncate(self._file, os.fstat(self._file).st_size - num_written)
                raise OSError(0, "the disk is full")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.error(
            "%s cannot be written (%s); training goes on, but cannot be replayed from here",
            self.path,
            error.strerror or type(error).__name__,
        )
        self.close()


def has_learnt(path: Path) -> bool:
    """Tell whether a step was applied since the state was last the initial one, as is noted.

    A log that cannot be read says nothing against it.
    """
    found = False
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            for line in file:
                entry = read_entry(line.rstrip("\n"), str(path))
                found = isinstance(entry, Applied) or (found and entry.step > 0)
    except (OSError, DataError):
        return True
    return found


def next_noted(path: Path) -> int:
    """Return the step after the last one that is noted; 0 if none is, or none can be read."""
    try:
        entries = read_end(path)
    except DataError as error:
        log.warning("%s; steps that are done again from here are not noticed", error)
        return 0
    if not entries:
        return 0
    last = entries[-1]
    return last.step + 1 if isinstance(last, Applied) else last.step


def read_end(path: Path) -> list[Entry]:
    """Return what was noted last, at least two lines if there are as many; cheap to ask often."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - END_BYTES))
            lines = file.read().decode("ascii", "replace").split("\n")
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror})", where=str(path)) from None
    whole = lines[1:-1] if size > END_BYTES else lines[:-1]
    return [read_entry(line, str(path)) for line in whole]


def read_entry(line: str, where: str) -> Entry:
    """Return what a line says; `where` is how errors name it."""
    if found := _APPLIED.fullmatch(line):
        return Applied(int(found[1]), int(found[2]), int(found[3], 16))
    if found := _LOADED.fullmatch(line):
        return Loaded(int(found[1]), None if found[2] is None else int(found[2]))
    raise DataError(f"{quoted(line)} is no line of a step log", where=where)
