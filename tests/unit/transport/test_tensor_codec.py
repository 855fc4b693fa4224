"""The tensor codec: what goes in comes out, and nothing unexpected gets in."""

import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.errors import ContractError
from laser_vfl.core.training.gradients import received
from laser_vfl.core.training.row_rounding import INT4
from laser_vfl.transport.tensor_codec import (
    TensorSpec,
    decode_tensor,
    encode_tensor,
    serialised_frame,
)
from laser_vfl.v1 import peer_pb2, tensor_pb2

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SPEC = TensorSpec((2, 3), torch.float32)

shapes = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)
values = st.floats(width=32, allow_nan=False)


def across(tensor, dtype):
    """Through the bytes of a message, as a peer gets it."""
    sent = encode_tensor(tensor, dtype).SerializeToString()
    message = tensor_pb2.Tensor.FromString(sent)
    return decode_tensor(message, TensorSpec(tuple(tensor.shape), dtype))


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from(DTYPES), st.integers(0, 2**32))
def test_any_shape_comes_back_in_the_precision_of_the_wire(shape, dtype, seed):
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    got = across(tensor, dtype)
    assert got.dtype == torch.float32
    assert got.shape == tensor.shape
    assert torch.equal(got, tensor.to(dtype).float())


@settings(max_examples=40, deadline=None)
@given(st.lists(values, min_size=1, max_size=8))
def test_float32_comes_back_bit_for_bit(numbers):
    tensor = torch.tensor([numbers])
    assert torch.equal(across(tensor, torch.float32).view(torch.int32), tensor.view(torch.int32))


def test_special_values_survive():
    tensor = torch.tensor([[float("nan"), float("inf"), -float("inf"), -0.0]])
    for dtype in DTYPES:
        got = across(tensor, dtype)
        assert got.isnan().tolist() == [[True, False, False, False]]
        assert got[0, 1:3].tolist() == [float("inf"), -float("inf")]
        assert got[0, 3].signbit()


@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_integers_come_back_as_they_are(shape):
    largest = torch.full(shape, -(2**63)) + torch.arange(shape[0] * 3).reshape(shape)
    got = across(largest, torch.int64)
    assert got.dtype == torch.int64
    assert torch.equal(got, largest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_non_contiguous_tensors_are_sent_row_by_row(dtype):
    whole = torch.arange(24.0).reshape(4, 6)
    for view in (whole.T, whole[:, ::2], whole[1:3, 2:4], whole[:1].expand(3, 6)):
        assert not view.is_contiguous() or view.storage_offset()
        assert torch.equal(across(view, dtype), view)


def test_what_needs_gradients_is_sent_without_them():
    tensor = torch.ones(2, 2, requires_grad=True)
    assert not across(tensor * 2, torch.float32).requires_grad


def test_what_is_received_can_be_changed_and_differentiated():
    message = encode_tensor(torch.ones(2, 3), torch.float32)
    received = decode_tensor(message, SPEC)
    received.requires_grad_()
    (received * 2).sum().backward()
    received.detach().add_(1)
    assert decode_tensor(message, SPEC).tolist() == [[1.0] * 3] * 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(0, 9), st.sampled_from([torch.int8, INT4]), st.integers(0, 9))
def test_rows_of_integers_come_back_as_they_were_rounded(num_rows, width, dtype, seed):
    rows = torch.randn((num_rows, width), generator=torch.Generator().manual_seed(seed))
    thresholds = torch.rand((num_rows, width), generator=torch.Generator().manual_seed(seed + 1))
    sent = encode_tensor(rows, dtype, thresholds=thresholds).SerializeToString()
    got = decode_tensor(tensor_pb2.Tensor.FromString(sent), TensorSpec((num_rows, width), dtype))
    assert torch.equal(got, received(rows, dtype, thresholds))
    assert torch.equal(across(rows, dtype), received(rows, dtype))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(1, 40),
    st.sampled_from([*DTYPES, torch.int8, INT4, torch.int64]),
    st.booleans(),
)
def test_a_frame_that_is_put_together_is_the_one_that_protobuf_writes(
    num_rows, width, dtype, is_strided
):
    rows = torch.arange(2.0 * num_rows * width).reshape(2 * num_rows, width)
    rows = rows[::2] if is_strided else rows[:num_rows]
    frame = peer_pb2.Frame(run="run", generation=3, step=300, sender="bank", incarnation=2**60)
    together = serialised_frame(frame, rows, dtype)
    encode_tensor(rows, dtype, frame.tensor)
    assert peer_pb2.Frame.FromString(together) == frame
    if num_rows:
        assert together == frame.SerializeToString()


def message(dtype=tensor_pb2.DTYPE_FLOAT32, shape=(2, 3), data=bytes(24)):
    return tensor_pb2.Tensor(dtype=dtype, shape=shape, data=data)


def test_the_expected_message_is_accepted():
    assert decode_tensor(message(), SPEC).shape == (2, 3)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (message(dtype=tensor_pb2.DTYPE_FLOAT16), "float16"),
        (message(dtype=tensor_pb2.DTYPE_BFLOAT16, data=bytes(12)), "bfloat16"),
        (message(dtype=tensor_pb2.DTYPE_UNSPECIFIED), "dtype 0"),
        (message(dtype=99), "dtype 99"),
        (tensor_pb2.Tensor(), "dtype 0"),
        (message(shape=()), r"got \[\]"),
        (message(shape=(6,)), r"got \[6\]"),
        (message(shape=(2, 3, 1)), r"got \[2, 3, 1\]"),
        (message(shape=(3, 2)), r"got \[3, 2\]"),
        (message(shape=(2, 0), data=b""), r"got \[2, 0\]"),
        (message(shape=[1] * 5000), "5000 dimensions"),
        (message(shape=(2**31, 2**31), data=b""), "got"),
        (message(shape=(2**32 - 1, 3)), "got"),
        (message(data=bytes(23)), "expected 24 bytes of tensor data, got 23"),
        (message(data=bytes(25)), "got 25"),
        (message(data=bytes(12)), "got 12"),
        (message(data=b""), "got 0"),
        (message(dtype=tensor_pb2.DTYPE_INT8, data=bytes(10)), "int8"),
    ],
)
def test_anything_else_is_refused(wrong, match):
    arrived = tensor_pb2.Tensor.FromString(wrong.SerializeToString())
    with pytest.raises(ContractError, match=match) as refused:
        decode_tensor(arrived, SPEC)
    assert len(str(refused.value)) < 200


def test_a_refusal_allocates_nothing():
    """Even when the receiver itself expects something huge."""
    huge = TensorSpec((2**31, 2**31), torch.float32)
    claims = [
        (message(shape=(2**31, 2**31), data=b""), SPEC),
        (message(shape=(2**31, 2**31), data=b""), huge),
    ]
    for claim, expected in claims:
        tracemalloc.start()
        try:
            with pytest.raises(ContractError):
                decode_tensor(claim, expected)
            assert tracemalloc.get_traced_memory()[1] < 1 << 16
        finally:
            tracemalloc.stop()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-3, 5),
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 4), max_size=4),
    st.binary(max_size=32),
)
def test_arbitrary_messages_are_decoded_exactly_or_refused(dtype, shape, data):
    arrived = message(dtype, shape, data)
    if (dtype, shape, len(data)) == (1, [2, 3], 24):
        assert decode_tensor(arrived, SPEC).shape == (2, 3)
    else:
        with pytest.raises(ContractError):
            decode_tensor(arrived, SPEC)


def test_the_number_of_bytes_follows_from_shape_and_dtype():
    assert [TensorSpec((2, 3), dtype).num_bytes for dtype in DTYPES] == [24, 12, 12]
    assert TensorSpec((2, 3), torch.int8).num_bytes == 2 * (2 + 3)
    assert TensorSpec((2, 3), INT4).num_bytes == 2 * (2 + 2)
    assert TensorSpec((0, 7), torch.float32).num_bytes == 0
