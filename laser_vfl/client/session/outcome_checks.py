"""Checks of an outcome of an alignment that the coordinator sends, by what this client knows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ContractError
from laser_vfl.core.subsets import has
from laser_vfl.transport.alignment_messages import TABLE_NAMES
from laser_vfl.v1 import coordinator_pb2 as pb

ROW_BYTES = 8
"""A row on the wire is a little-endian int64."""


@dataclass(frozen=True)
class TableLimits:
    """The most that an outcome can say of one table to a client."""

    num_rows: int = 0
    num_groups: int = 0


def table_limits(num_rows: int, num_people: Iterable[int]) -> TableLimits:
    """Return the limits for a client's list, given the most people that each member can bring.

    No group is empty, and no two groups have the same members.
    """
    brought = list(num_people)
    return TableLimits(num_rows, min(2 ** len(brought) - 1, sum(brought)))


class OutcomeReader:
    """Puts an outcome together from its messages. What is above the limits is refused, not kept."""

    def __init__(self, most: Mapping[str, TableLimits]) -> None:
        self._most = most
        self._groups: dict[str, list[Group]] = {table: [] for table in most}
        self._rows: dict[str, dict[int, bytearray]] = {table: {} for table in most}
        self._num_rows = dict.fromkeys(most, 0)

    def add(self, piece: pb.FetchAlignmentResponse) -> None:
        """Take in a message of the coordinator."""
        table = TABLE_NAMES.get(piece.table, "")
        if table not in self._most:
            raise ContractError("the coordinator aligned a table that nobody submitted")
        most, groups, rows = self._most[table], self._groups[table], piece.rows.rows
        if len(groups) + len(piece.groups) > most.num_groups:
            raise ContractError(
                f"the coordinator tells of more groups than the {most.num_groups} that there can be"
            )
        if len(rows) % ROW_BYTES:
            raise ContractError(f"the coordinator's rows have {ROW_BYTES} bytes each")
        self._num_rows[table] += len(rows) // ROW_BYTES
        if self._num_rows[table] > most.num_rows:
            raise ContractError(
                f"the coordinator places more rows than the {most.num_rows} that this client listed"
            )
        groups.extend(Group(g.observed, g.size) for g in piece.groups)
        if rows:
            self._rows[table].setdefault(piece.rows.group, bytearray()).extend(rows)

    def whole(self) -> dict[str, ClientAlignment]:
        """Return this client's part of each table."""
        return {
            table: ClientAlignment(
                tuple(groups),
                {g: np.frombuffer(r, dtype="<i8") for g, r in self._rows[table].items()},
            )
            for table, groups in self._groups.items()
        }


def check_rows(alignment: ClientAlignment, num_rows: int, client: int, num_clients: int) -> None:
    """Refuse an outcome that does not place each of our rows once, in a group that is ours."""
    groups = alignment.groups
    if any(not group.observed or group.observed >> num_clients for group in groups):
        raise ContractError("the coordinator's groups are of clients that do not exist")
    ours = {g for g, group in enumerate(groups) if has(group.observed, client)}
    sizes = {g: len(rows) for g, rows in alignment.rows.items()}
    if sizes != {g: groups[g].size for g in ours if groups[g].size}:
        raise ContractError("the coordinator's groups do not have the sizes that it says")
    rows = np.concatenate([np.empty(0, np.int64), *alignment.rows.values()])
    if not np.array_equal(np.sort(rows), np.arange(num_rows)):
        raise ContractError("the coordinator does not place each of our rows once")


def check_members(held: Mapping[str, int], most: Mapping[str, int]) -> None:
    """Refuse groups that give somebody more people than it has committed to."""
    for name, num_people in held.items():
        if num_people > most.get(name, 0):
            raise ContractError(
                f"the coordinator says that {name} holds {num_people} people, "
                f"but it has committed to {most.get(name, 0)}"
            )
