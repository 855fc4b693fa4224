"""The members of a run as this client sees them, and the one rule of who takes part in a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from laser_vfl.client.session.coordinator_terms import check_seed
from laser_vfl.client.session.peer_address import checked_address
from laser_vfl.client.storage.state_directory import is_run_id
from laser_vfl.core.errors import ContractError, quoted
from laser_vfl.core.subsets import mask_of
from laser_vfl.v1 import coordinator_pb2 as pb


@dataclass(frozen=True)
class Peer:
    """Another member: its index in the roster, and how to reach and recognise it."""

    index: int
    name: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class MemberView:
    """A view with names turned into roster indices."""

    run: str
    generation: int
    me: Peer
    peers: tuple[Peer, ...]
    heads: tuple[str, ...]
    next_steps: tuple[tuple[int, int], ...]
    seed: int

    @property
    def addresses(self) -> dict[str, str]:
        """Where all members are, this client included."""
        return {peer.name: peer.address for peer in (self.me, *self.peers)}

    @property
    def my_next_step(self) -> int:
        """The first step that this client takes part in."""
        return dict(self.next_steps)[self.me.index]

    def participants(self, step: int) -> int:
        """Return the members whose `next_step` is at most `step`, as a mask."""
        return mask_of(index for index, next_step in self.next_steps if next_step <= step)


def member_view(
    message: pb.View, roster: Sequence[str], me: str, incarnation: int
) -> MemberView | None:
    """Read a view from the coordinator; None if this process is not in it."""
    check_view(message, roster)
    members = sorted(
        (_peer(m, roster) for m in message.members),
        key=lambda peer: peer.index,
    )
    mine = [m for m in members if (m.name, m.incarnation) == (me, incarnation)]
    if not mine:
        return None
    return MemberView(
        run=message.run,
        generation=message.generation,
        me=mine[0],
        peers=tuple(member for member in members if member.name != me),
        heads=tuple(message.heads),
        next_steps=tuple((roster.index(m.client), m.next_step) for m in message.members),
        seed=message.seed,
    )


def check_view(message: pb.View, roster: Sequence[str]) -> None:
    """Refuse a view of a run, a seed or clients that there cannot be."""
    if not is_run_id(message.run):
        raise ContractError(f"the coordinator calls a run {quoted(message.run)}")
    check_seed(message.seed)
    names = [member.client for member in message.members]
    if not _all_differ(names) or any(n not in roster for n in (*names, *message.heads)):
        raise ContractError("the coordinator's view does not fit the roster")


def _peer(member: pb.ViewMember | pb.AlignmentMember, roster: Sequence[str]) -> Peer:
    name = member.client
    return Peer(roster.index(name), name, member.incarnation, checked_address(member.address, name))


def _all_differ(values: Sequence[object]) -> bool:
    return len(set(values)) == len(values)


def read_peers(training: pb.Training, roster: Sequence[str], me: str) -> tuple[Peer, ...]:
    """Return everybody else who is a member or about to be one."""
    members: list[pb.ViewMember | pb.AlignmentMember] = [*training.view.members, *training.joiners]
    found = [
        _peer(member, roster)
        for member in members
        if member.client in roster and member.client != me
    ]
    peers = set(found)
    if not _all_differ([peer.incarnation for peer in peers]):
        raise ContractError("the coordinator gives two processes the same number")
    return tuple(sorted(peers, key=lambda peer: (peer.index, peer.incarnation)))
