"""Tensors to protobuf and back. The receiver says what it expects; anything else is refused."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.errors import ContractError
from laser_vfl.core.training.row_rounding import INT4, LEVELS, Codes, RoundedRows, rounded
from laser_vfl.transport.message_limits import SCALE_BYTES, row_bytes
from laser_vfl.transport.protobuf_fields import field_head
from laser_vfl.v1 import peer_pb2, tensor_pb2

_DTYPES: dict["tensor_pb2.DType.ValueType", torch.dtype] = {
    tensor_pb2.DTYPE_FLOAT32: torch.float32,
    tensor_pb2.DTYPE_FLOAT16: torch.float16,
    tensor_pb2.DTYPE_BFLOAT16: torch.bfloat16,
    tensor_pb2.DTYPE_INT64: torch.int64,
    tensor_pb2.DTYPE_INT8: torch.int8,
    tensor_pb2.DTYPE_INT4: INT4,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}

if set(_DTYPES) | {tensor_pb2.DTYPE_UNSPECIFIED} != set(tensor_pb2.DType.values()):
    raise ImportError("every DType of tensor.proto needs a torch dtype")
if sys.byteorder != "little":
    raise ImportError("tensors cross the wire little-endian, and this machine is not")


@dataclass(frozen=True)
class TensorSpec:
    """The shape and dtype that a receiver expects."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """How many bytes of data such a tensor has."""
        if self.dtype in LEVELS:
            num_rows, width = self.shape
            return num_rows * row_bytes(width, _name(self.dtype))
        return prod(self.shape) * self.dtype.itemsize


def encode_tensor(
    tensor: torch.Tensor,
    dtype: torch.dtype,
    message: tensor_pb2.Tensor | None = None,
    *,
    thresholds: torch.Tensor | None = None,
) -> tensor_pb2.Tensor:
    """Return a tensor as a message, in the precision of the wire; fills an empty one if given.

    `thresholds` decide how rows of integers are rounded; without them, to the nearest.
    """
    message = tensor_pb2.Tensor() if message is None else message
    message.dtype = _CODES[dtype]
    message.shape.extend(tensor.shape)
    message.data = bytes(_numbers(tensor, dtype, thresholds))
    return message


def serialised_frame(
    frame: peer_pb2.Frame,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    thresholds: torch.Tensor | None = None,
) -> bytes:
    """Return a frame that has no tensor yet as a message with this one.

    `encode_tensor` and serialising give the same, and copy the numbers three times.
    """
    form = tensor_pb2.Tensor(dtype=_CODES[dtype], shape=tensor.shape).SerializeToString()
    numbers = _numbers(tensor, dtype, thresholds)
    before_numbers = field_head(tensor_pb2.Tensor.DATA_FIELD_NUMBER, len(numbers))
    num_bytes = len(form) + len(before_numbers) + len(numbers)
    before_tensor = field_head(peer_pb2.Frame.TENSOR_FIELD_NUMBER, num_bytes)
    # A field that is appended to a serialised message belongs to it.
    return b"".join([frame.SerializeToString(), before_tensor, form, before_numbers, numbers])


def decode_tensor(message: tensor_pb2.Tensor, expected: TensorSpec) -> torch.Tensor:
    """Return the tensor of a message, or refuse it before anything is allocated.

    Integers stay what they are; all else becomes float32.
    """
    data = _checked(message, expected)
    if expected.dtype in LEVELS:
        return torch.from_numpy(_unpacked(data, expected).restored())
    dtype = torch.int64 if expected.dtype is torch.int64 else torch.float32
    if not data:
        return torch.zeros(expected.shape, dtype=dtype)
    received = torch.frombuffer(bytearray(data), dtype=expected.dtype)
    return received.reshape(expected.shape).to(dtype)


def decode_array(message: tensor_pb2.Tensor, expected: TensorSpec) -> npt.NDArray[np.float32]:
    """Return the same as `decode_tensor` as an array to read from; for small ones, much sooner."""
    if expected.dtype is not torch.float32:
        return decode_tensor(message, expected).numpy()
    return np.frombuffer(_checked(message, expected), np.float32).reshape(expected.shape)


def _numbers(
    tensor: torch.Tensor, dtype: torch.dtype, thresholds: torch.Tensor | None
) -> bytes | memoryview:
    """Return the numbers of a tensor as they travel; where possible, as they lie in memory."""
    if dtype in LEVELS:
        thresholds_rc = None if thresholds is None else thresholds.numpy()
        rows = rounded(tensor.detach().float().cpu().numpy(), dtype, thresholds_rc)
        return rows.scale_bits_r.tobytes() + _packed(rows.codes_rc, dtype)
    tensor = tensor.detach().to(device="cpu", dtype=dtype).contiguous()
    if dtype is torch.bfloat16:  # which numpy does not have
        tensor = tensor.view(torch.int16)
    return tensor.numpy().reshape(-1).view(np.uint8).data


def _packed(codes_rc: Codes, dtype: torch.dtype) -> bytes:
    if dtype is torch.int8:
        return codes_rc.tobytes()
    if codes_rc.shape[1] % 2:
        codes_rc = np.pad(codes_rc, ((0, 0), (0, 1)))
    halves_rc = codes_rc.view(np.uint8) & 0x0F
    return (halves_rc[:, ::2] | (halves_rc[:, 1::2] << 4)).tobytes()


def _unpacked(data: bytes, expected: TensorSpec) -> RoundedRows:
    num_rows, width = expected.shape
    scale_bits_r = np.frombuffer(data, "<u2", num_rows)
    packed = np.frombuffer(data, np.uint8, offset=SCALE_BYTES * num_rows)
    if expected.dtype is torch.int8:
        return RoundedRows(packed.view(np.int8).reshape(num_rows, width), scale_bits_r)
    packed = packed.reshape(num_rows, -(-width // 2))
    halves = np.empty((num_rows, 2 * packed.shape[1]), np.uint8)
    halves[:, ::2], halves[:, 1::2] = packed << 4, packed & 0xF0
    return RoundedRows(halves.view(np.int8)[:, :width] >> 4, scale_bits_r)  # with its sign


def _checked(message: tensor_pb2.Tensor, expected: TensorSpec) -> bytes:
    if _DTYPES.get(message.dtype) != expected.dtype:
        raise ContractError(
            f"expected a tensor of {_name(expected.dtype)}, got {_dtype_name(message.dtype)}"
        )
    if len(message.shape) != len(expected.shape) or tuple(message.shape) != expected.shape:
        raise ContractError(
            f"expected a tensor of shape {list(expected.shape)}, got {_brief(message.shape)}"
        )
    data = message.data  # asked for once: each time is a copy
    if len(data) != expected.num_bytes:
        raise ContractError(f"expected {expected.num_bytes} bytes of tensor data, got {len(data)}")
    return data


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_name(code: "tensor_pb2.DType.ValueType") -> str:
    dtype = _DTYPES.get(code)
    return _name(dtype) if dtype else f"dtype {int(code)}"


def _brief(shape: Sequence[int]) -> str:
    return str(list(shape)) if len(shape) <= 8 else f"{len(shape)} dimensions"
