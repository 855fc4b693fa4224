"""OUT/results.jsonl: a line for each score, safe the moment its run has ended."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.case import Case, JsonScalar, PMiss, Result

NAME = "results.jsonl"


class ScoreLine(Result):
    """A score, and which run with which settings it is of."""

    key: str
    settings: str
    changes: dict[str, JsonScalar]


SettingsHash = Callable[[Case], str]


class ResultsFile:
    """Takes lines, one durable write each, from one command at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ConfigError(
                f"cannot be written ({error.strerror})",
                where=str(self._path),
                hint="give another --out",
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise ConfigError(
                "another command is adding to these results",
                where=str(self._path),
                hint="wait for it, or give another --out",
            ) from None
        self._cut_torn_line()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def append(self, case: Case, settings: str, engine: str, results: Iterable[Result]) -> None:
        """Write the results of a run, each line at once and down to the disk."""
        for result in results:
            self.append_line(
                {
                    **result,
                    "engine": engine,
                    "key": case.key(),
                    "settings": settings,
                    "changes": dict(case.changes),
                }
            )

    def append_line(self, line: ScoreLine) -> None:
        """Write one line at once and down to the disk."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
        os.write(self._file, text.encode())
        os.fsync(self._file)

    def _cut_torn_line(self) -> None:
        """Take away what a crash has left of a last line: what follows has to start a new one."""
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._file, whole)


def read_lines(directory: Path) -> list[ScoreLine]:
    """Return all whole lines; a torn last one is not there yet."""
    path = directory / NAME
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", where=str(path)) from None
    whole = text.split("\n")[:-1]
    return [_parsed(line, f"{path}:{number}") for number, line in enumerate(whole, 1) if line]


def _parsed(text: str, where: str) -> ScoreLine:
    try:
        found: Any = json.loads(text)
        if ScoreLine.__required_keys__ <= found.keys():
            return cast(ScoreLine, found)
    except (ValueError, AttributeError, RecursionError):
        pass
    raise ConfigError("this is no result", where=where, hint="take the line out, and run again")


def missing(
    cases: Iterable[Case], lines: Sequence[ScoreLine], settings_hash: SettingsHash, engine: str
) -> list[Case]:
    """Return the runs whose scores are not all there, each with what it is still to be scored for.

    A score counts if it comes from the same engine with the same settings.
    """
    done: set[tuple[str, PMiss, str, str]] = {
        (line["key"], line["p_test"], line["settings"], line["engine"]) for line in lines
    }
    left = []
    for case in cases:
        key, settings = case.key(), settings_hash(case)
        p_test = tuple(p for p in case.p_test if (key, p, settings, engine) not in done)
        if p_test:
            left.append(replace(case, p_test=p_test))
    return left
