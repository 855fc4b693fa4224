"""One alignment at the coordinator: its members, their commitments and submissions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laser_vfl.coordinator.rules.directives import Call, Commitment, RingMemberInfo
from laser_vfl.coordinator.rules.policies import AlignmentPolicy
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.core.alignment import ClientAlignment, align, num_common
from laser_vfl.core.alignment_purpose import (
    TABLES,
    AlignmentPurpose,
    Scheme,
    lists_of,
    tables_of,
)
from laser_vfl.core.errors import AlignmentOver, ContractError, DataError

SHA256_BYTES = 32

Lists = Mapping[str, dict[str, npt.NDArray[np.uint8]]]
"""Blinded ids of each client and table."""

Results = dict[str, dict[str, ClientAlignment]]
"""What each client is told of each table."""


@dataclass
class Alignment:
    """An alignment from its call to its outcome. It has fixed members, and needs all of them."""

    id: str
    purpose: AlignmentPurpose
    scheme: Scheme
    run: str
    ring: tuple[RingMemberInfo, ...]
    number: int = 1
    begun_at: float = 0.0
    policy: AlignmentPolicy = field(default_factory=AlignmentPolicy)
    results: Results | None = None
    over_at: float = 0.0
    _commitments: dict[str, Commitment] = field(default_factory=dict)
    _brought: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many people each client has promised or sent, by client and table."""
    _lists: dict[str, dict[str, npt.NDArray[np.uint8]]] = field(default_factory=dict)
    _submitting: set[tuple[str, str]] = field(default_factory=set)
    _fetched: set[str] = field(default_factory=set)
    _is_taken: bool = False

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members, in roster order."""
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
    def is_based(self) -> bool:
        """Whether people who were aligned for a run before are known by their points already."""
        return self.run != self.id

    @property
    def tells_tables(self) -> bool:
        """Whether it is told with each point which table the person is in."""
        return len(self.tables) > len(lists_of(self.purpose, self.scheme))

    @property
    def call(self) -> Call:
        """What the members are told."""
        told: tuple[Commitment, ...] = ()
        if len(self._commitments) == len(self.ring):
            told = tuple(self._commitments[name] for name in self.members)
        return Call(self.id, self.purpose, self.run, self.ring, self.number, told)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The members that have not committed; when all have, those that have not submitted."""
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

    def grouped(self, results: Results, now: float) -> None:
        """This is its outcome."""
        self.results, self.over_at = results, now

    def commit(self, commitment: Commitment) -> None:
        """Take a client's word for its list. It cannot be taken back."""
        self._check_under_way()
        client, num_people = commitment.client, commitment.num_people
        if self.scheme != "ecdh":
            raise ContractError("lists of digests are not committed to")
        if len(commitment.sha256) != SHA256_BYTES:
            raise ContractError("a commitment is a SHA-256")
        if commitment.num_known and not self.is_based:
            raise ContractError("nobody was aligned before an alignment that is based on none")
        self._check_people(client, "serve", num_people)
        self._check_total(client, self._entries("serve", num_people))
        if self._commitments.setdefault(client, commitment) != commitment:
            raise ContractError(f"{client} has committed to another list already")

    def check_room(self, client: str, table: str, num_ids: int) -> None:
        """Raise unless a list of this table may be so long, or longer."""
        self._check_under_way()
        if self._is_taken:
            raise ContractError(f"{client} has submitted its lists already")
        if table not in lists_of(self.purpose, self.scheme):
            raise ContractError(f"a list of the {table} table is not submitted now")
        self._check_people(client, table, num_ids)
        self._check_total(client, self._entries(table, num_ids))
        if self.scheme == "ecdh":
            committed = self._committed(client)
            if num_ids > committed.num_people:
                raise _other_size(committed, num_ids)

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

    def submit(
        self,
        client: str,
        table: str,
        blinded: npt.NDArray[np.uint8],
        places: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """Take a list of blinded ids, which are known to be distinct.

        `places` has the place in TABLES of the table that each person is in, if that is told.
        """
        self.check_room(client, table, len(blinded))
        mine = {table: blinded}
        if self.scheme == "ecdh":
            committed = self._committed(client)
            if len(blinded) < committed.num_points:
                raise _other_size(committed, len(blinded))
        elif self.purpose is AlignmentPurpose.RUN:
            _check_apart(client, table, blinded, self._lists)
        if (places is not None) != self.tells_tables:
            raise ContractError("who is in which table is told with the points of a run")
        if places is not None:
            if places.shape != blinded.shape[:1] or (len(places) and places.max() >= len(TABLES)):
                raise ContractError("each person of a list is in one of the tables")
            mine = {
                other: blinded if other == table else blinded[places == TABLES.index(other)]
                for other in self.tables
            }
        self._lists.setdefault(client, {}).update(mine)

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
        """Whether all members have the outcome."""
        if self.results is None:
            return False
        if now > self.over_at + self.policy.result_s:
            return True
        there = [r for n in self.members if (r := registrations.get(n)) and self.has(r)]
        if self.purpose is AlignmentPurpose.UNALIGNED_IDS:
            return all(registration.report.naming == self.id for registration in there)
        return self._fetched.issuperset(registration.client for registration in there)

    def _check_under_way(self) -> None:
        if self.is_over:
            raise AlignmentOver("that alignment is not under way any more")

    def _check_people(self, client: str, table: str, num_people: int) -> None:
        if num_people > self.policy.max_people:
            raise ContractError(
                f"{client} brings more people in its {table} list than the "
                f"{self.policy.max_people} that max_people of the coordinator allows",
                hint="raise max_people there, or bring fewer",
            )

    def _entries(self, table: str, num_people: int) -> dict[str, int]:
        """Return how long the lists of a client are that come from one of so many people."""
        # Who is in the list of everybody may be in that of one more table.
        others = {"train": num_people} if self.tells_tables else {}
        return {table: num_people, **others}

    def _check_total(self, client: str, num_people: Mapping[str, int]) -> None:
        """Count people that a client brings, unless that makes too many of all clients together."""
        brought = dict(self._brought)
        for table, number in num_people.items():
            brought[client, table] = max(number, brought.get((client, table), 0))
        if sum(brought.values()) > self.policy.max_total_people:
            by_client = dict.fromkeys(self.members, 0)
            for (name, _), number in brought.items():
                by_client[name] += number
            told = ", ".join(f"{name} {number}" for name, number in by_client.items() if number)
            raise ContractError(
                f"there are more people in the lists of all clients together ({told}) than the "
                f"{self.policy.max_total_people} that max_total_people of the coordinator allows",
                hint="raise max_total_people there, and its memory with it, or bring fewer",
            )
        self._brought = brought

    def _committed(self, client: str) -> Commitment:
        if not self.call.commitments:
            raise ContractError("not everybody has committed yet")
        return self._commitments[client]


def group_lists(roster: Sequence[str], lists: Lists) -> Results:
    """Align all tables; return what each client is told. The lists are taken out, one by one."""
    tables = list(next(iter(lists.values())))
    by_table = {
        table: align([lists[name].pop(table) if name in lists else None for name in roster])
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


def _other_size(committed: Commitment, num_points: int) -> ContractError:
    besides = f", and {committed.num_known} of before," if committed.num_known else ""
    return ContractError(
        f"{committed.client} committed to {committed.num_points} points{besides} "
        f"and submitted {num_points}"
    )
