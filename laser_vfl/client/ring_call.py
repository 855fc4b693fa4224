"""A call to an alignment, as this client understands it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laser_vfl.client.artifacts import is_run_id
from laser_vfl.client.told_address import told_address
from laser_vfl.core.errors import ContractError, LimitExceeded
from laser_vfl.core.purpose import Purpose
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.alignments import PURPOSES_BY_CODE, TABLE_NAMES


@dataclass(frozen=True)
class Member:
    """A client in the ring."""

    name: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class Promise:
    """What a client has committed to for one table."""

    num_points: int
    sha256: bytes


Promises = Mapping[tuple[str, str], Promise]
"""By client and table."""


@dataclass(frozen=True)
class RingCall:
    """Who takes part, what for, and whose scalars are used."""

    id: str
    purpose: Purpose
    run: str
    members: tuple[Member, ...]
    roster: tuple[str, ...]
    number: int = 0
    """Alignments are counted."""

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in the order of the ring."""
        return tuple(member.name for member in self.members)

    def hops(self, owner: str, name: str) -> int:
        """Return how often an owner's list is handed on until it is at a member; home is last."""
        size = len(self.members)
        return (self.names.index(name) - self.names.index(owner) - 1) % size + 1

    def before(self, name: str) -> Member:
        """Return who hands lists to a member."""
        return self.members[self.names.index(name) - 1]

    def after(self, name: str) -> Member:
        """Return whom a member hands lists to."""
        return self.members[(self.names.index(name) + 1) % len(self.members)]


def read_call(message: pb.AlignmentCall, roster: Sequence[str], me: str) -> RingCall:
    """Read a call from the coordinator."""
    purpose = PURPOSES_BY_CODE.get(message.purpose)
    if purpose is None or not is_run_id(message.id) or not is_run_id(message.run):
        raise ContractError("the coordinator calls to an alignment that makes no sense")
    if (message.run == message.id) == (purpose is Purpose.NEWCOMERS):
        raise ContractError("newcomers come to a run that has been, and nobody else does")
    members = tuple(
        Member(m.client, m.incarnation, told_address(m.address, m.client)) for m in message.members
    )
    names = [member.name for member in members]
    if names != [name for name in roster if name in names] or me not in names:
        raise ContractError("the members of an alignment are on the roster, and in its order")
    return RingCall(message.id, purpose, message.run, members, tuple(roster), message.number)


def read_promises(
    message: pb.AlignmentCall, call: RingCall, tables: Sequence[str], max_people: int
) -> Promises:
    """Read what everybody has committed to; nobody may be left out, or bring too many."""
    promises = {
        (c.client, TABLE_NAMES.get(c.table, "")): Promise(c.num_points, c.sha256)
        for c in message.commitments
    }
    expected = {(name, table) for name in call.names for table in tables}
    if len(message.commitments) != len(expected) or set(promises) != expected:
        raise ContractError("the coordinator tells of other commitments than those of the members")
    for (client, table), promise in promises.items():
        if promise.num_points > max_people:
            raise LimitExceeded(
                f"{client} brings {promise.num_points} people in its {table} list",
                hint=f"this client takes part with at most {max_people}; raise max_people",
            )
    return promises
