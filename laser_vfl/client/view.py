"""The members of a run as this client sees them, and the one rule of who takes part in a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from laser_vfl.client.artifacts import is_run_id
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

    def participants(self, step: int) -> int:
        """Return the members whose `next_step` is at most `step`, as a mask."""
        return mask_of(index for index, next_step in self.next_steps if next_step <= step)


def member_view(message: pb.View, roster: Sequence[str], me: str) -> MemberView:
    """Read a view from the coordinator."""
    if not is_run_id(message.run):
        raise ContractError(f"the coordinator calls a run {quoted(message.run)}")
    if any(member.client not in roster for member in message.members):
        raise ContractError("the coordinator's view names a client that is not on the roster")
    members = sorted(
        (Peer(roster.index(m.client), m.client, m.incarnation, m.address) for m in message.members),
        key=lambda peer: peer.index,
    )
    mine = [member for member in members if member.name == me]
    if not mine:
        raise ContractError("the coordinator's view does not have this client")
    return MemberView(
        run=message.run,
        generation=message.generation,
        me=mine[0],
        peers=tuple(member for member in members if member.name != me),
        heads=tuple(m.client for m in message.members if m.has_head),
        next_steps=tuple((roster.index(m.client), m.next_step) for m in message.members),
        seed=message.seed,
    )
