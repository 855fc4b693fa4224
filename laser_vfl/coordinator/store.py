"""The coordinator's memory on disk: one SQLite file that is always either before or after a change.

A document of everything small, and the rows of an alignment until all its clients have them.
"""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from laser_vfl.coordinator.alignment import Results
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ConfigError

FILE = "coordinator.sqlite3"

BUSY_S = 5.0
"""How long a coordinator that is about to end has to let go of the file."""

_TABLES = """
CREATE TABLE IF NOT EXISTS document (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    run TEXT, client TEXT, part TEXT, number INTEGER, observed TEXT, size INTEGER, rows BLOB
);
"""


class Store:
    """What survives a coordinator that is killed at any moment."""

    def __init__(self, directory: Path, *, where: str = "state") -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / FILE, timeout=BUSY_S, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.executescript(_TABLES)
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise _unusable(directory, error, where) from None
        self._where = where
        self._directory = directory
        self._saved = ""

    def load(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the last document, if it was saved under the same settings."""
        try:
            found = dict(self._db.execute("SELECT key, value FROM document").fetchall())
            if found.get("fingerprint") != fingerprint:
                return None
            stored = json.loads(found["federation"])
        except (sqlite3.Error, ValueError, KeyError) as error:
            raise _unusable(self._directory, error, self._where) from None
        return dict(stored)

    def check_abandoned(self) -> None:
        """Raise if there is a run under way, of whatever settings, that would be overwritten."""
        query = "SELECT value FROM document WHERE key = 'federation'"
        try:
            found = self._db.execute(query).fetchone()
            run = json.loads(found[0])["run"] if found else None
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise _unusable(self._directory, error, self._where) from None
        if run and run["membership"]:
            raise ConfigError(
                f"run {run['id']} is under way, and began under other settings",
                where=self._where,
                hint=f"restore them, or move {FILE} away to give that run up",
            )

    def save(self, fingerprint: str, document: Mapping[str, Any]) -> bool:
        """Save a document if it has changed; returns whether it had. Raises sqlite3.Error."""
        text = json.dumps(document, sort_keys=True)
        if text == self._saved:
            return False
        with self._db:
            self._db.execute("BEGIN")
            for item in (("fingerprint", fingerprint), ("federation", text)):
                self._db.execute("INSERT OR REPLACE INTO document VALUES (?, ?)", item)
        self._saved = text
        return True

    def save_results(self, run: str, results: Results) -> None:
        """Save what each client is told of its rows; what was there goes."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM groups")
            for client, tables in results.items():
                for part, alignment in tables.items():
                    self._db.executemany(
                        "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?)",
                        _records(run, client, part, alignment),
                    )

    def load_results(self, run: str) -> Results:
        """Return what each client is to be told of its rows."""
        results: Results = {}
        query = "SELECT client, part, observed, size, rows FROM groups WHERE run = ? ORDER BY rowid"
        found: dict[tuple[str, str], tuple[list[Group], dict[int, Any]]] = {}
        try:
            stored = self._db.execute(query, (run,)).fetchall()
        except sqlite3.Error as error:
            raise _unusable(self._directory, error, self._where) from None
        for client, part, observed, size, rows in stored:
            groups, rows_of = found.setdefault((client, part), ([], {}))
            if observed is None:  # a table without a group
                continue
            if rows is not None:
                rows_of[len(groups)] = np.frombuffer(rows, dtype="<i8").astype(np.int64)
            groups.append(Group(int(observed), size))
        for (client, part), (groups, rows_of) in found.items():
            results.setdefault(client, {})[part] = ClientAlignment(tuple(groups), rows_of)
        return results

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _records(run: str, client: str, part: str, alignment: ClientAlignment) -> Any:
    if not alignment.groups:
        yield run, client, part, 0, None, 0, None
    for number, group in enumerate(alignment.groups):
        rows = alignment.rows.get(number)
        data = None if rows is None else rows.astype("<i8").tobytes()
        yield run, client, part, number, str(group.observed), group.size, data


def _unusable(directory: Path, error: Exception, where: str) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    if "locked" in str(reason):
        return ConfigError(
            f"another coordinator uses the directory {directory}",
            where=where,
            hint="stop that one first, or change `state`",
        )
    return ConfigError(
        f"the directory {directory} cannot be used ({reason})",
        where=where,
        hint=f"make it writable; if {FILE} is damaged, move it away and start without a run",
    )
