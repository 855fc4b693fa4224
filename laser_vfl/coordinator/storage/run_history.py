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

from laser_vfl.atomic_files import NewFile, replace_files
from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.core.errors import ConfigError
from laser_vfl.observability.background_writer import RunWork, at_once
from laser_vfl.private_files import FILE_MODE, make_private_directory, open_private

log = logging.getLogger(__name__)

FILE_NAME = "runs.jsonl"
MAX_BYTES = 10_000_000

MAX_KEPT = 100
"""So many finished runs go over into a new file: a model of theirs may still be served."""


class RunHistory(FederationObserver):
    """Logs what happens to runs and alignments, and appends it to runs.jsonl."""

    def __init__(self, state: Path, where: str, run: RunWork = at_once) -> None:
        self._path = state / FILE_NAME
        self._run = run
        try:
            make_private_directory(state)
            open_private(self._path, "a").close()
            self.members_of = _read_members(self._path)
            """The members of each run, by the run's id."""
            self.finished = _read_members(self._path, only_finished=True)
            """The same, of runs that have finished."""
            self.last_finished_at = _last_finished_at(self._path)
            """When a run finished last, by the wall clock; None if none has."""
        except OSError as error:
            raise ConfigError(
                f"the directory {state} cannot be written ({error.strerror})",
                where=where,
                hint="make it writable, or change `state`",
            ) from None

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """Append a line on a run or an alignment."""
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
        text = json.dumps(line) + "\n"
        self._run(lambda: self._put(text))

    def _put(self, text: str) -> None:
        try:
            _append(self._path, text)
        except OSError as error:
            log.warning("%s was not written: %s", FILE_NAME, error.strerror)


def _append(path: Path, text: str) -> None:
    """Append a line. A file that is full becomes the old one, and the old one goes."""
    if path.exists() and path.stat().st_size + len(text) > MAX_BYTES:
        finished = [json.dumps(line) for line in _lines(path) if _is_finished(line)]
        content = "".join(line + "\n" for line in finished[-MAX_KEPT:]).encode()
        replace_files([NewFile(path, [content], FILE_MODE, put_away=_old(path))])
    with open_private(path, "a") as file:
        file.write(text)


def _read_members(path: Path, *, only_finished: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the members of past runs."""
    found = {}
    for file in (_old(path), path):
        for line in _lines(file):
            if only_finished and not _is_finished(line):
                continue
            with suppress(ValueError, KeyError, TypeError):
                found[str(line["run"])] = tuple(map(str, line["members"]))
    return found


def _last_finished_at(path: Path) -> float | None:
    """Return when a run finished last; 0 if only that it did can be read."""
    found = None
    for line in _lines(path):
        if _is_finished(line):
            at, found = line.get("time"), 0.0
            with suppress(OverflowError):
                found = float(at) if isinstance(at, (int, float)) else 0.0
    return found


def _lines(path: Path) -> Iterator[Any]:
    """Return what is on the lines of a file; one that cannot be read is left out."""
    with suppress(FileNotFoundError), path.open(errors="replace") as file:
        for text in file:
            with suppress(ValueError, RecursionError):
                yield json.loads(text)


def _is_finished(line: Any) -> bool:
    return isinstance(line, dict) and "run" in line and line.get("event") == "finished"


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
