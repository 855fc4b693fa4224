"""Masked gradients through the mail of four clients: each gets sums, and nobody a part of one."""

import asyncio

import numpy as np
import pytest
import torch
from client_wire import until

from laser_vfl.client.inbox import Inbox, Interrupted
from laser_vfl.client.mail import Mail
from laser_vfl.client.pair_keys import PairKeys
from laser_vfl.client.progress import Progress
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.alignment import align_rows
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.plan import plan_step
from laser_vfl.core.schedule import in_order
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor

KIND, WIDTH, HEADS = pb.FRAME_KIND_GRADIENT, 3, 0b0111
PEERS = [Peer(k, name, 10 + k, "") for k, name in enumerate(("bank", "shop", "club", "telco"))]
HELD = [[0, 1, 2, 3], [0, 1, 2], [1, 2, 4], [0, 1, 2, 3]]
"""Which samples each client holds. Sample 3 has one head besides the telco's, which has none."""


class Links:
    """Streams that need no time."""

    def __init__(self, me, inboxes):
        self.inbox = inboxes[me.index] = Inbox()
        self.inbox.begin(1)
        self.keys = PairKeys("run", me)
        self.refused = []
        self.sent = {}
        self._me, self._inboxes = me, inboxes

    def send(self, kind, frames):
        for peer, data in frames:
            frame = self.sent[peer] = pb.Frame.FromString(data)
            self._inboxes[peer].put(self._me.index, frame)

    def refuse(self, peer, reason):
        self.refused.append(peer)


def plans():
    digests = [np.array(held, np.uint8)[:, None] * np.ones(32, np.uint8) for held in HELD]
    (step,) = in_order((alignments := align_rows(digests))[0].groups, 10)
    return [
        plan_step(step, alignment, client=k, participants=0b1111, heads=HEADS)
        for k, alignment in enumerate(alignments)
    ]


class Play:
    """Four clients that know each other's keys."""

    max_norm = 1e6

    def __init__(self):
        inboxes = {}
        self.links = [Links(peer, inboxes) for peer in PEERS]
        for one in PEERS:
            for other in PEERS:
                if one != other:
                    keys = self.links[one.index].keys
                    keys.agree(other, self.links[other.index].keys.public)
        self.plans = plans()
        torch.manual_seed(1)
        self.gradients = {
            k: torch.randn(len(plan.rows), len(plan.blocks), WIDTH)
            for k, plan in enumerate(self.plans)
            if plan.has_head
        }

    def mail(self, k):
        peers = tuple(peer for peer in PEERS if peer.index != k)
        view = MemberView("run", 1, PEERS[k], peers, (), (), 0)
        return Mail(self.links[k], view, Progress(), torch.float16, self.max_norm)

    def send(self):
        for k, gradient in self.gradients.items():
            blocks = self.plans[k].blocks
            columns = {block: column for column, block in enumerate(blocks)}
            self.mail(k).send_masked(self.plans[k], gradient, columns)

    async def receive(self, k):
        plan, receive = self.plans[k], self.mail(k).receive_sum
        arguments = (KIND, plan.step, plan.teachers, len(plan.rows), WIDTH)
        return await asyncio.to_thread(receive, *arguments)

    def expected(self, k):
        """The sum by sample, in the order of the client's rows."""
        rows = [HELD[k][row] for row in self.plans[k].rows]
        total = torch.zeros(len(rows), WIDTH)
        for head, gradient in self.gradients.items():
            if head != k:
                column = self.plans[head].blocks.index(k)
                for place, row in enumerate(self.plans[head].rows):
                    if (sample := HELD[head][row]) in rows:
                        total[rows.index(sample)] += gradient[place, column]
        return total


def test_everybody_gets_sums():
    async def play():
        clients = Play()
        clients.send()
        await asyncio.sleep(0)
        for k in range(4):
            found = await clients.receive(k)
            assert torch.allclose(found, clients.expected(k), atol=1e-6)
            assert found.any()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_what_is_sent_says_nothing_where_two_heads_send():
    async def play():
        clients = Play()
        clients.send()
        await asyncio.sleep(0)
        telco = PEERS[3].index
        for head in (0, 1, 2):
            plan = clients.plans[head]
            share = next(s for s in plan.shares if s.peer == telco)
            spec = TensorSpec((share.num_rows, WIDTH), torch.int64)
            sent = decode_tensor(clients.links[head].sent[telco].tensor, spec)
            positions = range(len(plan.rows)) if share.positions is None else share.positions
            for place, row in zip(positions, sent, strict=True):
                is_alone = HELD[head][plan.rows[place]] == 3
                plain = clients.gradients[head][place, plan.blocks.index(telco)].double() * 2**32
                is_plain = torch.equal(row, plain.round().long())
                assert is_plain == is_alone

    asyncio.run(asyncio.wait_for(play(), 10))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_who_sends_an_unmasked_gradient_is_refused_and_waited_for(dtype):
    async def play():
        clients = Play()
        clients.send()
        await asyncio.sleep(0)
        links = clients.links[3] = Links(PEERS[3], {})
        plan = clients.plans[3]
        for share in plan.teachers:
            frame = clients.links[share.peer].sent[3]
            if share.peer == 1:
                frame = pb.Frame(run="run", generation=1, step=plan.step, kind=KIND)
                encode_tensor(torch.ones(share.num_rows, WIDTH), dtype, frame.tensor)
            links.inbox.put(share.peer, frame)
        task = asyncio.create_task(clients.receive(3))
        await until(lambda: task.done() or (links.refused and links.inbox.waiting_for))
        links.inbox.fail(Interrupted())
        with pytest.raises(Interrupted):
            await task
        assert links.refused == [1]

    asyncio.run(asyncio.wait_for(play(), 10))


def test_a_sum_beyond_all_bounds_ends_the_training_of_who_gets_it():
    async def play():
        clients = Play()
        clients.gradients[1] *= 1e4
        clients.send()
        await asyncio.sleep(0)
        clients.max_norm = 10.0
        with pytest.raises(TrainingStopped, match="masks hide whose it is"):
            await clients.receive(3)
        with pytest.raises(TrainingStopped, match="is not what may be sent"):
            clients.send()

    asyncio.run(asyncio.wait_for(play(), 10))
