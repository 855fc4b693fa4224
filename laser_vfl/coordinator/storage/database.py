"""The coordinator's memory on disk: one SQLite file that is always either before or after a change.

A document of everything small, and the rows of an alignment until all its clients have them.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from laser_vfl.coordinator.rules.alignment.alignment import Results
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ConfigError, printable
from laser_vfl.private_files import make_private_directory, open_private

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
    """What survives a coordinator that is killed at any moment. One thread at a time may use it."""

    def __init__(self, directory: Path, *, where: str = "state") -> None:
        try:
            make_private_directory(directory)
            open_private(directory / FILE, "ab").close()  # what SQLite puts beside it is as private
            self._db = sqlite3.connect(
                directory / FILE, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.executescript(_TABLES)
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            # What SQLite says of a damaged file may quote it.
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
            # Earlier releases wrote none.
            if found.get("sha256", _sha256(found["federation"])) != _sha256(found["federation"]):
                raise ValueError("the document is not the one that was written")
            return dict(json.loads(found["federation"]))
        except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.unusable(error) from None

    def unusable(self, error: Exception) -> ConfigError:
        """Return the error of a document that is there, and that nobody could go on from."""
        return _unusable(self._directory, error, self._where)

    def check_abandoned(self) -> None:
        """Raise if there is a run under way, of whatever settings, that would be overwritten."""
        query = "SELECT value FROM document WHERE key = 'federation'"
        try:
            found = self._db.execute(query).fetchone()
            run = json.loads(found[0])["run"] if found else None
            under_way = str(run["id"]) if run and run["membership"] else ""
        except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.unusable(error) from None
        if under_way:
            raise ConfigError(
                f"run {printable(under_way)} is under way, and began under other settings",
                where=self._where,
                hint=f"restore them, or move {FILE} away to give that run up",
            )

    def has_saved(self, document: Mapping[str, Any]) -> bool:
        """Whether this is the document that was saved last; the database is not asked."""
        return json.dumps(document, sort_keys=True) == self._saved

    def save(self, fingerprint: str, document: Mapping[str, Any]) -> bool:
        """Save a document if it has changed; returns whether it had. Raises sqlite3.Error."""
        text = json.dumps(document, sort_keys=True)
        if text == self._saved:
            return False
        with self._db:
            self._db.execute("BEGIN")
            items = {"fingerprint": fingerprint, "federation": text, "sha256": _sha256(text)}
            for item in items.items():
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
            for client, part, observed, size, rows in stored:
                groups, rows_of = found.setdefault((client, part), ([], {}))
                if observed is None:  # a table without a group
                    continue
                if rows is not None:
                    rows_of[len(groups)] = np.frombuffer(rows, dtype="<i8").astype(np.int64)
                groups.append(Group(int(observed), int(size)))
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            raise self.unusable(error) from None
        for (client, part), (groups, rows_of) in found.items():
            results.setdefault(client, {})[part] = ClientAlignment(tuple(groups), rows_of)
        return results

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _records(run: str, client: str, part: str, alignment: ClientAlignment) -> Any:
    if not alignment.groups:
        yield run, client, part, 0, None, 0, None
    for number, group in enumerate(alignment.groups):
        rows = alignment.rows.get(number)
        data = None if rows is None else rows.astype("<i8").tobytes()
        yield run, client, part, number, str(group.observed), group.size, data


def _unusable(directory: Path, error: Exception, where: str) -> ConfigError:
    # What is said of a damaged document quotes it, and that may be what nobody can print.
    reason = error.strerror if isinstance(error, OSError) else printable(str(error))
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # of any kind
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
