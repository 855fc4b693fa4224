"""What the training thread gets of its peers' tensors, and what it refuses."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from client_wire import until

from laser_vfl.client.inbox import Inbox, Interrupted
from laser_vfl.client.mail import Mail
from laser_vfl.client.progress import Progress
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import encode_tensor

KIND = pb.FRAME_KIND_REPRESENTATION
PEERS = (Peer(1, "shop", 2, "shop:1"), Peer(2, "telco", 3, "telco:1"))


class Links:
    """Where frames come from, and who is refused."""

    def __init__(self):
        self.inbox = Inbox()
        self.inbox.begin(1)
        self.refused = []

    def refuse(self, peer, reason):
        self.refused.append(peer)
        self.inbox.offences[reason] += 1


def receive(links, *tensors):
    """Have a tensor of each peer come in, and receive them as a training thread does."""

    async def play():
        view = MemberView("run", 1, Peer(0, "bank", 1, "bank:1"), PEERS, (), (), 0)
        mail = Mail(links, view, Progress(), torch.float32, 100.0)
        for peer, tensor in zip(PEERS, tensors, strict=True):
            frame = pb.Frame(run="run", generation=1, step=4, kind=KIND)
            encode_tensor(tensor, torch.float32, frame.tensor)
            links.inbox.put(peer.index, frame)
        shares = [SimpleNamespace(peer=peer.index, num_rows=2) for peer in PEERS]
        task = asyncio.create_task(asyncio.to_thread(mail.receive, KIND, 4, shares, 3))
        await until(lambda: task.done() or (links.refused and links.inbox.waiting_for))
        if links.refused:
            assert links.inbox.waiting_for == tuple(links.refused)
            links.inbox.fail(Interrupted())
        return await task

    return asyncio.run(asyncio.wait_for(play(), 10))


def test_what_comes_is_what_was_sent():
    found = receive(Links(), torch.ones(2, 3), torch.zeros(2, 3))
    assert {peer: tensor.tolist() for peer, tensor in found.items()} == {
        1: [[1.0] * 3] * 2,
        2: [[0.0] * 3] * 2,
    }


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
def test_who_sends_something_else_is_refused_and_waited_for(bad, caplog):
    links = Links()
    reason = "unfit numbers" if bad.shape == (2, 3) else "misshapen"
    with pytest.raises(Interrupted):
        receive(links, torch.ones(2, 3), bad)
    assert links.refused == [2]
    assert links.inbox.offences == {reason: 1}
    assert "telco broke the contract at step 4" in caplog.text


def send(tensor, dtype, positions=None):
    """Send a tensor to a peer as a training thread does; return how many frames it made."""

    async def play():
        view = MemberView("run", 1, Peer(0, "bank", 1, "bank:1"), PEERS, (), (), 0)
        links = SimpleNamespace(sent=[])
        links.send = lambda kind, frames: links.sent.extend(frames)
        mail = Mail(links, view, Progress(), dtype, 1e6)
        share = SimpleNamespace(peer=1, positions=positions)
        await asyncio.to_thread(mail.send_rows, KIND, 4, tensor, [share])
        await until(lambda: links.sent)
        return len(links.sent)

    return asyncio.run(asyncio.wait_for(play(), 10))


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
        send(torch.tensor([[1.0, 1.0], bad]), dtype)
    assert "optimizer.lr" in stopped.value.hint


def test_rows_that_are_not_sent_do_not_matter():
    rows = torch.tensor([[1.0, 1.0], [2e6, 0.0]])
    assert send(rows, torch.float32, np.array([0])) == 1
