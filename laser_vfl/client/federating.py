"""One chunk of a joint SVD, as one client does it: two parties show, one client computes."""

import torch

from laser_vfl.client.exchange import Exchange
from laser_vfl.client.mail import Mail
from laser_vfl.core.joint_svd import Chunk
from laser_vfl.core.plan import Share
from laser_vfl.core.subsets import has
from laser_vfl.v1 import peer_pb2 as pb


def federate_step(
    exchange: Exchange, chunk: Chunk, number: int, participants: int, own_key: bytes
) -> bool:
    """Do one step; return whether this client had a part in it.

    A pair that lacks somebody goes without. Doing it again changes nothing.
    """
    me = exchange.learner.place.client
    if chunk.clients & ~participants or not has(chunk.clients, me):
        return False
    step = _Step(exchange, chunk, number, own_key)
    if chunk.upward:
        step.bring_up()
    else:
        step.bring_down()
    return True


class _Step:
    def __init__(self, exchange: Exchange, chunk: Chunk, number: int, own_key: bytes) -> None:
        assert isinstance(exchange.mail, Mail)
        assert exchange.learner.scratch is not None
        self._mail, self._components = exchange.mail, exchange.learner.scratch
        self._inputs = exchange.table.inputs
        self._width = exchange.learner.place.settings.representation_dim
        self._me = exchange.learner.place.client
        self._chunk, self._number, self._own_key = chunk, number, own_key
        self._is_party = self._me in chunk.parties
        self._computes = self._me == chunk.computer
        self._others = [party for party in chunk.parties if party != self._me]

    def bring_up(self) -> None:
        """Show the own rows to who computes, or gather both parties'."""
        chunk, mail, kind = self._chunk, self._mail, pb.FRAME_KIND_REPRESENTATION
        shown: dict[int, torch.Tensor] = {}
        if self._is_party:
            # The parties meet first: then each has the other's key, and neither runs ahead.
            mail.acknowledge(self._number, self._others)
            mail.wait_for_acknowledgements(self._number, self._others)
            key = mail.key_of(chunk.partner(self._me))
            shown[self._me] = self._components.shown(self._inputs, chunk, key, self._own_key)
        if not self._computes:
            mail.send_rows(kind, self._number, shown[self._me], self._shares([chunk.computer]))
            if chunk.computer not in chunk.parties:
                mail.wait_for_acknowledgements(self._number, [chunk.computer])
            return
        shown |= mail.receive(kind, self._number, self._shares(self._others), self._width)
        if not self._is_party:
            mail.acknowledge(self._number, chunk.parties)
        self._components.gather(chunk, [shown[party] for party in chunk.parties])

    def bring_down(self) -> None:
        """Send the parties the rows as they are in the pair's directions, or take them."""
        chunk, mail, kind = self._chunk, self._mail, pb.FRAME_KIND_GRADIENT
        if self._computes:
            turned = self._components.turned(chunk)
            mail.send_rows(kind, self._number, turned, self._shares(self._others))
            mail.wait_for_acknowledgements(self._number, self._others)
        else:
            shares = self._shares([chunk.computer])
            turned = mail.receive(kind, self._number, shares, self._width)[chunk.computer]
            mail.acknowledge(self._number, [chunk.computer])
        if self._is_party:
            self._components.keep(chunk, mail.as_received(turned))

    def _shares(self, peers: list[int]) -> list[Share]:
        return [Share(peer, None, self._chunk.stop - self._chunk.start) for peer in peers]
