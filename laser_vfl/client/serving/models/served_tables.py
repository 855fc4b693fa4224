"""The tables that a client answers from, as rows for a model; the serving table is followed."""

import logging
from pathlib import Path

import torch

from laser_vfl.atomic_files import Stamp, stamp
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.serving.row_index import RowIndex, Rowset
from laser_vfl.client.tables.block import Block, unlabelled_spec
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.table_listing import NOBODY, Blind, People
from laser_vfl.core.errors import DataError
from laser_vfl.data import Encoding, Table, TableSpec, read_table
from laser_vfl.data.table_report import surprises

log = logging.getLogger(__name__)


class ServedTables:
    """The rows of the training, test and serving tables, without people to forget."""

    def __init__(
        self, config: ClientConfig, block: Block, blind: Blind, forgotten: ErasureList
    ) -> None:
        self._spec = unlabelled_spec(config)
        self._serve = ServeTable(config.data.serve, self._spec, blind)
        self._paths = [path for path in (config.data.test, config.data.train) if path is not None]
        self._block = block
        self._blind = blind
        self._forgotten = forgotten

    @property
    def problem(self) -> str:
        """What is wrong with the serving table, if anything."""
        return self._serve.problem

    @property
    def people(self) -> People:
        """The people of the serving table who are not forgotten."""
        people = self._serve.people
        return people.part(~self._forgotten.are(people.ids))

    def set_block(self, block: Block) -> None:
        """Take rows from this block where its encoding fits."""
        self._block = block

    def read(self) -> None:
        """Read the serving table, if there is to be one; raises what is wrong with it."""
        self._serve.read()

    def refresh(self) -> bool:
        """Read the serving table if it has changed; tell whether there may be other rows now."""
        return self._serve.refresh()

    def row_index(self, encoding: Encoding, before: RowIndex | None = None) -> RowIndex:
        """Return the rows of all tables in the encoding of a model.

        A serving table that does not fit it is left out, or leaves all rows as they were before.
        """
        try:
            served = self._serve.rowsets(encoding)
        except DataError as error:
            self._serve.complain(error)
            if before is not None:
                return before
            served = []
        own = self._encoded(encoding)
        return RowIndex([*served, *own]).without(self._forgotten.are)

    def _encoded(self, encoding: Encoding) -> list[Rowset]:
        block = self._block
        if block.encoding.to_json() == encoding.to_json():
            tables = [table for table in (block.test, block.train) if table is not None]
            return [Rowset(table.digests, table.inputs, table.ids) for table in tables]
        return self._read_again(encoding)

    def _read_again(self, encoding: Encoding) -> list[Rowset]:
        """Encode the tables as they were encoded in training, although they have changed since."""
        rowsets = []
        for path in self._paths:
            try:
                table: Table = read_table(path, self._spec)
                inputs = torch.from_numpy(encoding.apply(table))
            except DataError as error:
                log.warning("the model cannot use a table any more: %s", error)
                continue
            rowsets.append(Rowset(self._blind(table.ids), inputs, table.ids))
        return rowsets


class ServeTable:
    """People to score besides those of the test table.

    A broken file changes nothing: the rows of its last good version stay.
    """

    def __init__(self, path: Path | None, spec: TableSpec, blind: Blind) -> None:
        self.problem = ""
        self._path = path
        self._spec = spec
        self._blind = blind
        self._stamp: Stamp | None = None
        self._is_read = False
        self._table: Table | None = None
        self._digests: Digests | None = None

    def read(self) -> None:
        """Read the file, if there is to be one, whether it has changed or not."""
        if self._path is None:
            return
        self._stamp, self._is_read = stamp(self._path), True
        table = read_table(self._path, self._spec)
        self._table, self._digests = table, self._blind(table.ids)
        self.problem = ""
        log.info("%d rows to serve from %s", len(table), self._path.name)

    def refresh(self) -> bool:
        """Read the file if it has changed; tell whether there may be other rows now."""
        if self._path is None or (self._is_read and stamp(self._path) == self._stamp):
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
        rows = encoding.apply(self._table)
        for line in surprises(self._table, encoding, rows):
            log.warning("data.serve: %s", line)
        inputs = torch.from_numpy(rows)
        return [Rowset(self._digests, inputs, self._table.ids)]

    @property
    def people(self) -> People:
        """The people in the table."""
        if self._table is None or self._digests is None:
            return NOBODY
        return People(self._table.ids, self._digests)

    def complain(self, error: DataError) -> None:
        """Take note that the rows cannot be used as they are."""
        self.problem = str(error)
        log.warning("data.serve is not used as it is now: %s", error)
