"""The coordinator's history: one JSON line for whatever happened to a run or an alignment.

It is also how a coordinator that was restarted knows who took part in the runs of the past.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from laser_vfl.coordinator.alignment import Alignment
from laser_vfl.coordinator.alignments import Note
from laser_vfl.coordinator.run import Run
from laser_vfl.core.errors import ConfigError

log = logging.getLogger(__name__)

FILE_NAME = "runs.jsonl"
MAX_BYTES = 10_000_000

MAX_KEPT = 100
"""So many finished runs go over into a new file: a model of theirs may still be served."""


def open_history(state: Path, where: str) -> tuple[Note, dict[str, tuple[str, ...]]]:
    """Return a function that logs what happens and appends it to runs.jsonl, and past members."""
    path = state / FILE_NAME
    try:
        state.mkdir(parents=True, exist_ok=True)
        path.touch()
        members_of = _read_members(path)
    except OSError as error:
        raise ConfigError(
            f"the directory {state} cannot be written ({error.strerror})",
            where=where,
            hint="make it writable, or change `state`",
        ) from None

    def note(event: str, subject: Run | Alignment, reason: str) -> None:
        line: dict[str, Any] = {"time": time.time(), "event": event, "members": subject.members}
        if isinstance(subject, Run):
            what = "run"
            line |= {"run": subject.id, "seed": subject.seed}
        else:
            what = f"alignment ({subject.purpose.value})"
            line |= {"alignment": subject.id, "purpose": subject.purpose.value}
        log.info("%s %s %s%s", what, subject.id, event, f": {reason}" if reason else "")
        if reason:
            line["reason"] = reason
        try:
            _append(path, json.dumps(line) + "\n")
        except OSError as error:
            log.warning("%s was not written: %s", FILE_NAME, error.strerror)

    return note, members_of


def _append(path: Path, text: str) -> None:
    """Append a line. A file that is full becomes the old one, and the old one goes."""
    if path.exists() and path.stat().st_size + len(text) > MAX_BYTES:
        finished = [json.dumps(line) for line in _lines(path) if _is_finished(line)]
        new = path.with_suffix(".new")
        new.write_text("".join(line + "\n" for line in finished[-MAX_KEPT:]))
        path.replace(_old(path))
        new.replace(path)
    with path.open("a") as file:
        file.write(text)


def _read_members(path: Path) -> dict[str, tuple[str, ...]]:
    """Return who took part in the runs of the past."""
    found = {}
    for file in (_old(path), path):
        for line in _lines(file):
            with suppress(ValueError, KeyError, TypeError):
                found[str(line["run"])] = tuple(map(str, line["members"]))
    return found


def _lines(path: Path) -> Iterator[Any]:
    """Return what is on the lines of a file; one that cannot be read is left out."""
    with suppress(FileNotFoundError), path.open(errors="replace") as file:
        for text in file:
            with suppress(ValueError):
                yield json.loads(text)


def _is_finished(line: Any) -> bool:
    return isinstance(line, dict) and "run" in line and line.get("event") == "finished"


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
