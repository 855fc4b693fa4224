"""Masked gradients between four clients: each gets sums, and nobody a part of one."""

import asyncio

import numpy as np
import pytest
import torch

from laser_vfl.client.peers.frame_buffer import FrameBuffer, Interrupted
from laser_vfl.client.peers.pair_keys import PairKeys
from laser_vfl.client.peers.step_transport import ExchangeFormat, PeerTransport
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.client.session.progress import Progress
from laser_vfl.core.alignment import align_rows
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.schedule.schedule import in_order
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor, encode_tensor
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.local_streams import until

KIND, WIDTH, HEADS = pb.FRAME_KIND_GRADIENT, 3, 0b0111
PEERS = [Peer(k, name, 10 + k, "") for k, name in enumerate(("bank", "shop", "club", "telco"))]
HELD = [[0, 1, 2, 3], [0, 1, 2], [1, 2, 4], [0, 1, 2, 3]]
"""Which samples each client holds. Sample 3 has one head besides the telco's, which has none."""


class Mesh:
    """Streams that need no time."""

    def __init__(self, me, buffers):
        self.buffer = buffers[me.index] = FrameBuffer()
        self.buffer.begin(1)
        self.take, self.holds = self.buffer.take, self.buffer.holds
        self.keys = PairKeys("run", me)
        self.refused = []
        self.sent = {}
        self._me, self._buffers = me, buffers

    def send(self, frames):
        for peer, _, data in frames:
            frame = self.sent[peer] = pb.Frame.FromString(data)
            self._buffers[peer].put(self._me.index, frame)

    def refuse(self, peer, reason):
        self.refused.append(peer)

    def key_of(self, peer):
        return self.keys.key_of(PEERS[peer])


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
        buffers = {}
        self.meshes = [Mesh(peer, buffers) for peer in PEERS]
        for one in PEERS:
            for other in PEERS:
                if one != other:
                    keys = self.meshes[one.index].keys
                    keys.agree(other, self.meshes[other.index].keys.public)
        self.plans = plans()
        torch.manual_seed(1)
        self.gradients = {
            k: torch.randn(len(plan.rows), len(plan.blocks), WIDTH)
            for k, plan in enumerate(self.plans)
            if plan.has_head
        }

    def transport(self, k):
        peers = tuple(peer for peer in PEERS if peer.index != k)
        view = MemberView("run", 1, PEERS[k], peers, (), (), 0)
        form = ExchangeFormat(WIDTH, torch.float16, self.max_norm, masks_gradients=True)
        return PeerTransport(self.meshes[k], view, form, Progress())

    def send(self):
        for k, gradient in self.gradients.items():
            transport = self.transport(k)
            transport.send_gradients(self.plans[k], gradient)
            transport.flush()

    async def receive(self, k):
        """Gather what the others' heads send; this client's own part is left out."""
        gather = self.transport(k).gather_gradients
        return await asyncio.to_thread(gather, self.plans[k], None, WIDTH)

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
            sent = decode_tensor(clients.meshes[head].sent[telco].tensor, spec)
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
        mesh = clients.meshes[3] = Mesh(PEERS[3], {})
        plan = clients.plans[3]
        for share in plan.head_peers:
            frame = clients.meshes[share.peer].sent[3]
            if share.peer == 1:
                frame = pb.Frame(run="run", generation=1, step=plan.step, kind=KIND)
                encode_tensor(torch.ones(share.num_rows, WIDTH), dtype, frame.tensor)
            mesh.buffer.put(share.peer, frame)
        task = asyncio.create_task(clients.receive(3))
        await until(lambda: task.done() or (mesh.refused and mesh.buffer.waiting_for))
        mesh.buffer.fail(Interrupted())
        with pytest.raises(Interrupted):
            await task
        assert mesh.refused == [1]

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
