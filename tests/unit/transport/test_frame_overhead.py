"""The computed length of a frame is that of a real one, and headers count for each packet."""

import pytest
import torch

from laser_vfl.transport.frame_overhead import (
    DTYPES,
    KINDS,
    blank_frame,
    frame_message_bytes,
    link_bytes,
    tcp_bytes,
    tensor_bytes,
)
from laser_vfl.transport.tensor_codec import encode_tensor
from laser_vfl.v1 import peer_pb2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width", "step"), [(1, 1, 0), (128, 128, 127), (3, 9000, 128)])
def test_length_of_a_frame_is_that_of_a_real_one(dtype, rows, width, step):
    frame = peer_pb2.Frame(
        run="ab" * 16, generation=1, step=step, kind=KINDS["gradient"], sender="bank", incarnation=4
    )
    encode_tensor(torch.zeros(rows, width), getattr(torch, dtype), frame.tensor)
    found = frame_message_bytes(
        "gradient", sender="bank", step=step, rows=rows, width=width, dtype=dtype
    )
    assert found == len(frame.SerializeToString())
    assert tensor_bytes(rows, width, dtype) == len(frame.tensor.data)


@pytest.mark.parametrize(("dtype", "most"), [("int8", 0.27), ("int4", 0.14)])
def test_small_integers_save_most_of_the_bytes(dtype, most):
    found = frame_message_bytes(
        "gradient", sender="bank", step=10**6, rows=128, width=64, dtype=dtype
    )
    assert tcp_bytes(found) <= most * tensor_bytes(128, 64, "float32")


def test_a_frame_without_a_tensor():
    frame = peer_pb2.Frame(
        run="ab" * 16, generation=1, step=7, kind=KINDS["evaluated"], sender="shop", incarnation=2
    )
    assert frame_message_bytes("evaluated", sender="shop", step=7) == len(frame.SerializeToString())


def test_a_blank_frame_has_the_numbers_it_should():
    frame = peer_pb2.Frame.FromString(blank_frame(5, 7, "bfloat16"))
    assert (list(frame.tensor.shape), len(frame.tensor.data)) == ([5, 7], 70)


def test_what_layers_add():
    assert tcp_bytes(100, tls=False) == 100 + 5 + 9
    assert tcp_bytes(100) == 100 + 5 + 9 + 22
    assert tcp_bytes(16_384 - 5) == 16_384 + 9 + 2 * 22  # one HTTP/2 frame, two records
    assert link_bytes(1) == 67
    assert link_bytes(1_448) == 1_514
    assert link_bytes(1_449) == 1_449 + 2 * 66
