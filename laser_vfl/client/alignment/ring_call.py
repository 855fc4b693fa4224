"""A call to an alignment, as this client understands it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laser_vfl.client.session.peer_address import checked_address
from laser_vfl.client.storage.state_directory import is_run_id
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import ContractError, TooManyPeople
from laser_vfl.transport.alignment_messages import PURPOSES_BY_CODE
from laser_vfl.v1 import coordinator_pb2 as pb


@dataclass(frozen=True)
class RingMember:
    """A client in the ring."""

    name: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class Promise:
    """What a client has committed to."""

    num_points: int
    sha256: bytes
    num_known: int = 0
    """How many people it may submit besides, by the points that they had before."""

    @property
    def num_people(self) -> int:
        """The most that it may submit."""
        return self.num_points + self.num_known


Promises = Mapping[str, Promise]
"""By client."""


@dataclass(frozen=True)
class RingCall:
    """Who takes part, what for, and whose scalars are used."""

    id: str
    purpose: AlignmentPurpose
    run: str
    members: tuple[RingMember, ...]
    roster: tuple[str, ...]
    number: int = 0
    """Alignments are counted."""

    @property
    def is_based(self) -> bool:
        """Whether people who were aligned for a run before are known by their points already."""
        return self.run != self.id

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in the order of the ring."""
        return tuple(member.name for member in self.members)

    def hops(self, owner: str, name: str) -> int:
        """Return how often an owner's list is handed on until it is at a member; home is last."""
        size = len(self.members)
        return (self.names.index(name) - self.names.index(owner) - 1) % size + 1

    def before(self, name: str) -> RingMember:
        """Return who hands lists to a member."""
        return self.members[self.names.index(name) - 1]

    def after(self, name: str) -> RingMember:
        """Return whom a member hands lists to."""
        return self.members[(self.names.index(name) + 1) % len(self.members)]


def read_call(message: pb.AlignmentCall, roster: Sequence[str], me: str) -> RingCall:
    """Read a call from the coordinator."""
    purpose = PURPOSES_BY_CODE.get(message.purpose)
    if purpose is None or not is_run_id(message.id) or not is_run_id(message.run):
        raise ContractError("the coordinator calls to an alignment that makes no sense")
    is_based = message.run != message.id
    if is_based != (purpose is AlignmentPurpose.UNALIGNED_IDS) and (
        purpose is not AlignmentPurpose.RUN
    ):
        raise ContractError("unaligned ids come to a run that has been, and a dry run to none")
    members = tuple(
        RingMember(m.client, m.incarnation, checked_address(m.address, m.client))
        for m in message.members
    )
    names = [member.name for member in members]
    if names != [name for name in roster if name in names] or me not in names:
        raise ContractError("the members of an alignment are on the roster, and in its order")
    return RingCall(message.id, purpose, message.run, members, tuple(roster), message.number)


def read_promises(message: pb.AlignmentCall, call: RingCall, max_people: int) -> Promises:
    """Read what everybody has committed to; nobody may be left out, or bring too many."""
    promises = {c.client: Promise(c.num_points, c.sha256, c.num_known) for c in message.commitments}
    if len(message.commitments) != len(call.names) or set(promises) != set(call.names):
        raise ContractError("the coordinator tells of other commitments than those of the members")
    for client, promise in promises.items():
        if promise.num_known and not call.is_based:
            raise ContractError(
                f"{client} brings people of before to an alignment that is based on none"
            )
        if promise.num_people > max_people:
            raise TooManyPeople(
                f"{client} brings {promise.num_people} people",
                hint=f"this client takes part with at most {max_people}; raise max_people",
            )
    return promises
