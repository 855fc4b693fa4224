"""What the training thread sends to its peers and gathers from them, and what it refuses."""

import asyncio

import numpy as np
import pytest
import torch

from laser_vfl.client.peers.frame_buffer import FrameBuffer, Interrupted
from laser_vfl.client.peers.step_transport import ExchangeFormat, LocalTransport, PeerTransport
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.client.session.progress import Progress
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.schedule.step_plan import Plan, Share
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor, encode_tensor
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.local_streams import until

KIND = pb.FRAME_KIND_REPRESENTATION
BANK, *PEERS = [
    Peer(k, name, k + 1, f"{name}:1") for k, name in enumerate(("bank", "shop", "telco"))
]
VIEW = MemberView("run", 1, BANK, tuple(PEERS), (), (), 0)
FORM = ExchangeFormat(3, torch.float32, 100.0)


class Mesh:
    """Where frames come from and go to, and who is refused."""

    def __init__(self):
        self.buffer = FrameBuffer()
        self.buffer.begin(1)
        self.refused = {}
        self.sent = {}
        self.take, self.holds, self.wait = self.buffer.take, self.buffer.holds, self.buffer.wait

    def refuse(self, peer, reason):
        self.refused[peer] = reason

    def send(self, frames):
        for peer, kind, data in frames:
            self.sent[peer, kind] = pb.Frame.FromString(data)

    def check(self):
        if self.buffer.failure is not None:
            raise self.buffer.failure

    def comes(self, peer, tensor, kind=KIND):
        frame = pb.Frame(run="run", generation=1, step=4, kind=kind)
        encode_tensor(tensor, torch.float32, frame.tensor)
        self.buffer.put(peer, frame)

    def sent_to(self, peer, shape, kind=KIND, dtype=torch.float32):
        return decode_tensor(self.sent[peer, kind].tensor, TensorSpec(shape, dtype)).tolist()


def planned(positions=None, num_rows=2):
    """Two rows of the bank's, of which the telco holds those at some positions."""
    shares = (
        Share(1, None, 2),
        Share(2, None if positions is None else np.array(positions), num_rows),
    )
    observed = np.array([7, 7], np.uint64)
    return Plan(4, 0, np.arange(2), observed, (0, 1, 2), shares, 2, True, shares)


def gather(mesh, *tensors):
    """Have a tensor of each peer come in, and gather them as a training thread does."""

    async def play():
        transport = PeerTransport(mesh, VIEW, FORM, Progress())
        for peer, tensor in zip(PEERS, tensors, strict=True):
            mesh.comes(peer.index, tensor)
        stack = torch.zeros(2, 3, 3)
        gathering = asyncio.to_thread(
            transport.gather_representations, planned(), stack, Phase.TRAINING
        )
        task = asyncio.create_task(gathering)
        await until(lambda: task.done() or (mesh.refused and mesh.buffer.waiting_for))
        if mesh.refused:
            assert mesh.buffer.waiting_for == tuple(mesh.refused)
            mesh.buffer.fail(Interrupted())
        await task
        return stack

    return asyncio.run(asyncio.wait_for(play(), 10))


def test_what_comes_is_what_was_sent():
    stack = gather(Mesh(), torch.ones(2, 3), torch.full((2, 3), 2.0))
    assert stack.tolist() == [[[0.0] * 3, [1.0] * 3, [2.0] * 3]] * 2


@pytest.mark.parametrize(
    "bad",
    [
        torch.ones(2, 4),
        torch.ones(6),
        torch.full((2, 3), np.nan),
        torch.full((2, 3), np.inf),
        torch.tensor([[1.0, 1.0, 1.0], [0.0, 102.0, 0.0]]),
    ],
    ids=["wide", "flat", "nan", "inf", "long"],
)
def test_who_sends_something_else_is_refused_and_waited_for(bad):
    mesh = Mesh()
    reason = "unfit numbers" if bad.shape == (2, 3) else "misshapen"
    with pytest.raises(Interrupted):
        gather(mesh, torch.ones(2, 3), bad)
    assert mesh.refused == {2: reason}


def test_a_peer_gets_the_rows_and_the_columns_that_concern_it():
    columns = {1: torch.tensor([0, 1, 3]), 2: torch.tensor([3, 2, 1])}
    form = ExchangeFormat(3, torch.float32, 100.0, columns=columns.get)
    mesh = Mesh()
    transport = PeerTransport(mesh, VIEW, form, Progress())
    plan = planned(positions=[1], num_rows=1)
    own = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    transport.send_representations(plan, own, Phase.TRAINING)
    assert mesh.sent == {}
    transport.flush()
    assert mesh.sent_to(1, (2, 3)) == [[1.0, 2.0, 4.0], [5.0, 6.0, 8.0]]
    assert mesh.sent_to(2, (1, 3)) == [[8.0, 7.0, 6.0]]

    mesh.comes(1, torch.ones(2, 3))
    mesh.comes(2, torch.tensor([[10.0, 20.0, 30.0]]))
    stack = torch.zeros(2, 3, 4)
    transport.gather_representations(plan, stack, Phase.TRAINING)
    assert stack[:, 1].tolist() == [[1.0, 1.0, 0.0, 1.0]] * 2
    assert stack[:, 2].tolist() == [[0.0] * 4, [0.0, 30.0, 20.0, 10.0]]


def test_gradients_go_and_come_by_the_same_rows_and_columns():
    columns = {1: torch.tensor([0, 1, 3]), 2: torch.tensor([3, 2, 1])}
    form = ExchangeFormat(3, torch.float32, 100.0, columns=columns.get)
    mesh, kind = Mesh(), pb.FRAME_KIND_GRADIENT
    transport = PeerTransport(mesh, VIEW, form, Progress())
    plan = planned(positions=[1], num_rows=1)
    transport.send_gradients(plan, torch.arange(24.0).reshape(2, 3, 4))
    transport.flush()
    assert mesh.sent_to(1, (2, 3), kind) == [[4.0, 5.0, 7.0], [16.0, 17.0, 19.0]]
    assert mesh.sent_to(2, (1, 3), kind) == [[23.0, 22.0, 21.0]]

    mesh.comes(1, torch.ones(2, 3), kind)
    mesh.comes(2, torch.tensor([[10.0, 20.0, 30.0]]), kind)
    total = transport.gather_gradients(plan, torch.full((2, 4), 0.5), 4)
    assert total.tolist() == [[1.5, 1.5, 0.5, 1.5], [1.5, 31.5, 20.5, 11.5]]


def send(tensor, dtype, plan):
    """Send a tensor to two peers as a training thread does; return the peers that got any."""
    mesh = Mesh()
    form = ExchangeFormat(2, dtype, 1e6)
    transport = PeerTransport(mesh, VIEW, form, Progress())
    transport.send_representations(plan, tensor, Phase.TRAINING)
    transport.flush()
    return [peer for peer, _ in mesh.sent]


@pytest.mark.parametrize(
    ("bad", "dtype"),
    [
        ([2e6, 0.0], torch.float32),
        ([8e5, 8e5], torch.bfloat16),
        ([np.nan, 0.0], torch.float32),
        ([70_000.0, 0.0], torch.float16),
    ],
)
def test_who_diverges_stops_before_it_breaks_the_contract(bad, dtype):
    with pytest.raises(TrainingStopped, match="the representation of step 4") as stopped:
        send(torch.tensor([[1.0, 1.0], bad]), dtype, planned())
    assert "optimizer.lr" in stopped.value.hint


def test_rows_that_are_not_sent_do_not_matter():
    share = Share(2, np.array([0]), 1)
    observed = np.array([5, 1], np.uint64)
    plan = Plan(4, 0, np.arange(2), observed, (0, 2), (share,), 2, True, (share,))
    assert send(torch.tensor([[1.0, 1.0], [2e6, 0.0]]), torch.float32, plan) == [2]


def test_alone_a_client_learns_from_its_own_gradient():
    plan = Plan(4, 0, np.arange(2), np.array([1, 1], np.uint64), (0,), (), 2, True, ())
    transport, own = LocalTransport(), torch.randn(2, 3)
    stack = own[:, None].clone()
    transport.send_representations(plan, own, Phase.TRAINING)
    transport.gather_representations(plan, stack, Phase.TRAINING)
    assert torch.equal(stack[:, 0], own)
    transport.send_gradients(plan, stack)
    assert torch.equal(transport.gather_gradients(plan, own, 3), own)
