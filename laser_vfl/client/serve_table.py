"""The serving table: people to score besides those of the test table, re-read when it changes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from laser_vfl.client.digest_index import Digests
from laser_vfl.client.holdings import Rowset
from laser_vfl.client.listing import NOBODY, People
from laser_vfl.core.errors import DataError
from laser_vfl.data import Encoding, Table, TableSpec, read_table

log = logging.getLogger(__name__)


def serve_spec(spec: TableSpec) -> TableSpec:
    """Return what a serving table has: it needs no label, and where it has one, as no feature."""
    left_out = () if spec.label is None else (spec.label,)
    return replace(spec, label=None, exclude=(*spec.exclude, *left_out))


class ServeTable:
    """The file as it was last found in order; a broken one leaves the rows as they were."""

    def __init__(
        self, path: Path | None, spec: TableSpec, blind: Callable[[Sequence[str]], Digests]
    ) -> None:
        self.problem = ""
        self._path = path
        self._spec = serve_spec(spec)
        self._blind = blind
        self._signature: tuple[int, ...] | None = ()
        self._table: Table | None = None
        self._digests: Digests | None = None

    def read(self) -> None:
        """Read the file, if there is to be one, whether it has changed or not."""
        if self._path is None:
            return
        self._signature = self._sign()
        table = read_table(self._path, self._spec)
        self._table, self._digests = table, self._blind(table.ids)
        self.problem = ""
        log.info("%d rows to serve from %s", len(table), self._path.name)

    def refresh(self) -> bool:
        """Read the file if it has changed; tell whether there may be other rows now."""
        if self._path is None or self._sign() == self._signature:
            return False
        try:
            self.read()
        except DataError as error:
            self.complain(error)
            return False
        return True

    def rowsets(self, encoding: Encoding) -> list[Rowset]:
        """Return the rows as a model takes them: one set, or none."""
        if self._table is None or self._digests is None:
            return []
        inputs = torch.from_numpy(encoding.apply(self._table))
        return [Rowset(self._digests, inputs, self._table.ids)]

    @property
    def people(self) -> People:
        """Who is in the table."""
        if self._table is None or self._digests is None:
            return NOBODY
        return People(self._table.ids, self._digests)

    def complain(self, error: DataError) -> None:
        """Take note that the rows cannot be used as they are."""
        self.problem = str(error)
        log.warning("data.serve is not used as it is now: %s", error)

    def _sign(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None
