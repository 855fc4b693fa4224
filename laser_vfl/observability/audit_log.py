"""The audit log: what happened at this daemon and who caused it, one JSON line each.

It never holds ids, digests, features, labels, tensors or key material: numbers and names only.
"""

import asyncio
import errno
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from laser_vfl.core.errors import printable
from laser_vfl.observability.background_writer import RunWork, at_once
from laser_vfl.observability.tallies import Labels, Tallies, Tally
from laser_vfl.rotating_files import MAX_BYTES, make_room
from laser_vfl.security.credentials import Material

log = logging.getLogger(__name__)

FILE_NAME = "audit.jsonl"

FLUSH_S = 1.0
MAX_TEXT = 300

FEW = 10
"""So many events of a kind have a line each in a minute."""

Value = (
    str | int | float | bool | Sequence[str] | Mapping[str, int] | Mapping[str, Mapping[str, int]]
)


Refused = Callable[[str, str, str, str], None]
"""Gets who was refused (an identity, or an address), the method, the kind of error, the reason."""


class AuditLog:
    """Appends to a file. Whatever is wrong with the file, the daemon goes on.

    It lives on the event loop of its daemon; `run` takes the writing away from there.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, run: RunWork = at_once
    ) -> None:
        self._path = path
        self._clock = clock
        self._run = run
        self._tallies = Tallies()
        self._num_lost = 0
        """Lines that could not be written since the last one that could."""

    def note(self, event: str, **fields: Value) -> None:
        """Write one line."""
        now = self._clock()
        text = _line(event, now, fields)
        self._run(lambda: self._put(text, now))

    def refused(self, identity: str, method: str, code: str, reason: str) -> None:
        """Note that a call was refused; the same again is counted, and noted once a minute."""
        fields = {"identity": identity, "method": method, "code": code, "reason": reason}
        labels = self._tallies.fold("refused", {k: _short(v) for k, v in fields.items()})
        if self._tallies.is_told("refused", labels, 1, self._clock()):
            self.note("refused", **labels, count=1)

    def note_few(self, event: str, labels: Labels, **fields: Value) -> None:
        """Write a line, unless there were many with these labels; then they are counted.

        For what a party can make happen as often as it likes.
        """
        kept = self._tallies.fold(event, labels)
        if self._tallies.is_told(event, kept, FEW, self._clock()):
            self.note(event, **kept, **fields)

    def count(self, event: str, labels: Labels, **numbers: int) -> None:
        """Add to what is noted of this event once a minute."""
        self._tallies.add(event, self._tallies.fold(event, labels), numbers, self._clock())

    def flush(self) -> None:
        """Note what was counted for a minute."""
        self._write(self._tallies.take_due(self._clock()))

    def close(self) -> None:
        """Note all that was counted."""
        self._write(self._tallies.take_all())

    async def keep(self) -> None:
        """Flush again and again, for as long as the daemon lives."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    def _put(self, text: bytes, now: float) -> None:
        if self._num_lost:
            text = _line("lost", now, {"count": self._num_lost}) + text
        try:
            make_room(self._path, len(text), MAX_BYTES)
            _append(self._path, text)
            self._num_lost = 0
        except OSError as error:
            if not self._num_lost:
                log.warning("%s cannot be written (%s)", self._path.name, error.strerror)
            self._num_lost += 1

    def _write(self, tallies: Sequence[Tally]) -> None:
        for tally in tallies:
            if any(tally.numbers.values()):
                since = _iso(tally.since)
                self.note(tally.event, **tally.labels, **tally.numbers, since=since)


def note_certificate(audit: AuditLog, material: Material) -> None:
    """Note that this daemon shows another certificate from now on."""
    audit.note(
        "certificate_changed",
        identity=material.me.uri,
        serial=f"{material.serial:x}",
        until=material.ends_at.isoformat(),
    )


def _append(path: Path, text: bytes) -> None:
    """Append a text, or nothing of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, text) < len(text):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _line(event: str, now: float, fields: Mapping[str, Value]) -> bytes:
    shown = {
        key: _short(value) if isinstance(value, str) else value for key, value in fields.items()
    }
    return json.dumps({"time": _iso(now), "event": event, **shown}).encode() + b"\n"


def _short(text: str) -> str:
    return printable(text[:MAX_TEXT])


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
