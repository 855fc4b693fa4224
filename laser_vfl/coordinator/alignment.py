"""One alignment at the coordinator: who is called, who has committed, what was submitted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laser_vfl.coordinator.directives import Call, Commitment, RingMember
from laser_vfl.coordinator.registration import Registration
from laser_vfl.core.alignment import ClientAlignment, align, num_common
from laser_vfl.core.errors import AlignmentOver, ContractError, DataError
from laser_vfl.core.purpose import Purpose, Scheme, tables_of
from laser_vfl.wire.protocol import MAX_POINTS

RESULT_S = 60.0
"""How long the outcome of an alignment without a run is kept for those who have not fetched it."""

SHA256_BYTES = 32

Lists = Mapping[str, Mapping[str, npt.NDArray[np.uint8]]]
"""Blinded ids of each client and table."""

Results = dict[str, dict[str, ClientAlignment]]
"""What each client is told of each table."""


@dataclass
class Alignment:
    """An alignment from its call to its outcome. It has fixed members, and needs all of them."""

    id: str
    purpose: Purpose
    scheme: Scheme
    run: str
    ring: tuple[RingMember, ...]
    number: int = 1
    begun_at: float = 0.0
    max_people: int = MAX_POINTS
    """The longest list that is taken; each is held in memory."""
    results: Results | None = None
    over_at: float = 0.0
    _commitments: dict[str, tuple[Commitment, ...]] = field(default_factory=dict)
    _lists: dict[str, dict[str, npt.NDArray[np.uint8]]] = field(default_factory=dict)
    _submitting: set[tuple[str, str]] = field(default_factory=set)
    _fetched: set[str] = field(default_factory=set)
    _is_taken: bool = False

    @property
    def members(self) -> tuple[str, ...]:
        """The names of those who take part, in roster order."""
        return tuple(member.client for member in self.ring)

    def has(self, registration: Registration) -> bool:
        """Whether this process takes part, wherever it listens now."""
        mine = (registration.client, registration.incarnation)
        return any((member.client, member.incarnation) == mine for member in self.ring)

    @property
    def tables(self) -> tuple[str, ...]:
        """What is aligned."""
        return tables_of(self.purpose, self.scheme)

    @property
    def call(self) -> Call:
        """What the members are told."""
        told: tuple[Commitment, ...] = ()
        if len(self._commitments) == len(self.ring):
            told = tuple(c for name in self.members for c in self._commitments[name])
        return Call(self.id, self.purpose, self.run, self.ring, self.number, told)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has not committed yet; when all have, who has not submitted yet."""
        if self._is_taken:
            return ()
        if self.scheme == "ecdh" and not self.call.commitments:
            return tuple(name for name in self.members if name not in self._commitments)
        return tuple(
            name for name in self.members if len(self._lists.get(name, ())) < len(self.tables)
        )

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome."""
        return self.results is not None

    def commit(self, client: str, commitments: Iterable[Commitment]) -> None:
        """Take a client's word for its lists. It cannot be taken back."""
        self._check_under_way()
        mine = tuple(commitments)
        if sorted(c.table for c in mine) != sorted(self.tables):
            raise ContractError("a client commits to one list for each table")
        if any(len(c.sha256) != SHA256_BYTES for c in mine):
            raise ContractError("a commitment is a SHA-256")
        for commitment in mine:
            self._check_people(client, commitment.table, commitment.num_points)
        if self._commitments.setdefault(client, mine) != mine:
            raise ContractError(f"{client} has committed to other lists already")

    def check_room(self, client: str, table: str, num_ids: int) -> None:
        """Raise unless a list of this table may be so long, or longer."""
        self._check_under_way()
        if self._is_taken:
            raise ContractError(f"{client} has submitted its lists already")
        if table not in self.tables:
            raise ContractError(f"the {table} table is not aligned now")
        self._check_people(client, table, num_ids)
        if self.scheme == "ecdh":
            committed = self._committed(client, table)
            # Newcomers are committed to; those who were aligned before are submitted with them.
            if num_ids > committed and self.purpose is not Purpose.NEWCOMERS:
                raise _other_size(client, table, committed, num_ids)

    @contextmanager
    def submitting(self, client: str, table: str) -> Iterator[None]:
        """Take in one list of a client's table at a time, so that no more than that is held."""
        if (client, table) in self._submitting:
            raise ContractError(f"{client} submits its {table} list twice")
        self._submitting.add((client, table))
        try:
            yield
        finally:
            self._submitting.discard((client, table))

    def submit(self, client: str, table: str, blinded: npt.NDArray[np.uint8]) -> None:
        """Take the blinded ids of one table, which are known to be distinct."""
        self.check_room(client, table, len(blinded))
        if self.scheme == "ecdh":
            committed = self._committed(client, table)
            if len(blinded) < committed:
                raise _other_size(client, table, committed, len(blinded))
        elif self.purpose is Purpose.RUN:
            _check_apart(client, table, blinded, self._lists)
        self._lists.setdefault(client, {})[table] = blinded

    def take_lists(self) -> Lists | None:
        """Return all lists once they are there, and forget them."""
        if self._is_taken or self.waiting_for:
            return None
        self._is_taken = True
        lists, self._lists = self._lists, {}
        return lists

    def fetched(self, client: str) -> None:
        """Take note that a client knows the outcome."""
        self._fetched.add(client)

    def may_be_forgotten(self, registrations: Mapping[str, Registration], now: float) -> bool:
        """Whether nobody needs the outcome any more."""
        if self.results is None:
            return False
        if now > self.over_at + RESULT_S:
            return True
        there = [r for n in self.members if (r := registrations.get(n)) and self.has(r)]
        if self.purpose is Purpose.NEWCOMERS:
            return all(registration.report.naming == self.id for registration in there)
        return self._fetched.issuperset(registration.client for registration in there)

    def _check_under_way(self) -> None:
        if self.is_over:
            raise AlignmentOver("that alignment is not under way any more")

    def _check_people(self, client: str, table: str, num_people: int) -> None:
        if num_people > self.max_people:
            raise ContractError(
                f"{client} brings more people in its {table} list than the {self.max_people} "
                "that max_people of the coordinator allows",
                hint="raise max_people there, or bring fewer",
            )

    def _committed(self, client: str, table: str) -> int:
        if not self.call.commitments:
            raise ContractError("not everybody has committed yet")
        return next(c for c in self._commitments[client] if c.table == table).num_points


def group_lists(roster: Sequence[str], lists: Lists) -> Results:
    """Align all tables; return what each client is told."""
    tables = next(iter(lists.values()))
    by_table = {
        table: align([lists[name][table] if name in lists else None for name in roster])
        for table in tables
    }
    return {
        name: {table: by_table[table][k] for table in tables}
        for k, name in enumerate(roster)
        if name in lists
    }


def _check_apart(client: str, table: str, digests: npt.NDArray[np.uint8], lists: Lists) -> None:
    """Refuse a table that shares people with the other table of another client."""
    other_table = "test" if table == "train" else "train"
    for other, theirs in lists.items():
        if other == client or other_table not in theirs:
            continue
        if common := num_common(digests, theirs[other_table]):
            raise DataError(
                f"{common} samples of the {table} table of {client} are in the {other_table} "
                f"table of {other}",
                hint="agree with that client on who is for training and who for testing",
            )


def _other_size(client: str, table: str, committed: int, num_points: int) -> ContractError:
    return ContractError(
        f"{client} committed to {committed} points of the {table} table and submitted {num_points}"
    )
