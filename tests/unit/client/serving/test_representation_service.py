"""What a peer is answered with: representations that it may use, and no others."""

import asyncio
from types import SimpleNamespace

import grpc.aio
import numpy as np
import pytest
import torch

from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.client.serving.limits.request_cost import RowCost
from laser_vfl.client.serving.representation_service import RepresentationService
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.protocol import MAX_IDS
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor
from laser_vfl.v1 import peer_pb2 as pb


class Representation:
    """Gives what it was told to, whatever the inputs."""

    def __init__(self, rows):
        self._rows = torch.tensor(rows)

    async def submit(self, inputs):
        return self._rows[: len(inputs)]


def answer(rows, *, num_ids=None, dtype=torch.float32):
    """Ask a client that holds all but the first sample about some samples."""
    num_ids = len(rows) + 1 if num_ids is None else num_ids
    served = SimpleNamespace(
        model=SimpleNamespace(
            settings=TrainingSettings(representation_dim=2, batch_size=1, epochs=1),
            roster=("bank", "shop"),
            is_asked_by=lambda name: True,
            concerning=lambda rows, name: rows,
            wire_dtype=dtype,
            release=None,
        ),
        max_rows=MAX_IDS,
        row_cost=RowCost(1, 4),
        pseudonyms=None,
        row_index=SimpleNamespace(
            find=lambda digests: np.arange(len(digests)) - 1, inputs=lambda found: found
        ),
        representation=Representation(rows),
    )

    async def get(run):
        return served

    registry = SimpleNamespace(current=None, get_for_peers=get)
    service = RepresentationService(
        "shop",
        registry,
        Accounts(100.0, 1e6),
        lambda: frozenset({"bank"}),
        SimpleNamespace(count=lambda *_, **__: None),
        FairBudget(1_000_000, "memory"),
    )
    request = pb.RepresentRequest(sender="bank", digests=bytes(num_ids * DIGEST_BYTES))
    messages, written = [request, grpc.aio.EOF], []

    async def read():
        return messages.pop(0)

    async def write(message):
        written.append(message)

    context = SimpleNamespace(read=read, write=write)
    asyncio.run(service.serve(None, context))
    (response,) = written
    places = np.frombuffer(response.places, "<u4")
    spec = TensorSpec((len(places), 2), dtype)
    return places.tolist(), decode_tensor(response.representations, spec).tolist()


def test_who_holds_a_sample_answers_for_it():
    assert answer([[1.0, 2.0], [3.0, 4.0]]) == ([1, 2], [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("bad", "dtype"),
    [
        ([2e6, 0.0], torch.float32),
        ([float("nan"), 0.0], torch.float32),
        ([7e4, 0.0], torch.float16),
    ],
)
def test_a_sample_on_which_the_model_diverges_is_left_out(bad, dtype, caplog):
    assert answer([[1.0, 2.0], bad, [3.0, 4.0]], dtype=dtype) == (
        [1, 3],
        [[1.0, 2.0], [3.0, 4.0]],
    )
    assert "diverges on 1 samples" in caplog.text


def test_nobody_asks_about_too_many_at_once():
    with pytest.raises(ContractError, match=f"at most {MAX_IDS} samples"):
        answer([[1.0, 2.0]], num_ids=MAX_IDS + 1)
