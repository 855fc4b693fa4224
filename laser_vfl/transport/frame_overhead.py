"""How long a frame is as a message, over TCP and on the link, without sending one."""

from typing import Literal

from laser_vfl.transport.message_limits import row_bytes
from laser_vfl.v1 import peer_pb2, tensor_pb2

DTYPES: dict[str, "tensor_pb2.DType.ValueType"] = {
    "float32": tensor_pb2.DTYPE_FLOAT32,
    "float16": tensor_pb2.DTYPE_FLOAT16,
    "bfloat16": tensor_pb2.DTYPE_BFLOAT16,
    "int64": tensor_pb2.DTYPE_INT64,
    "int8": tensor_pb2.DTYPE_INT8,
    "int4": tensor_pb2.DTYPE_INT4,
}
KINDS: dict[str, "peer_pb2.FrameKind.ValueType"] = {
    "representation": peer_pb2.FRAME_KIND_REPRESENTATION,
    "gradient": peer_pb2.FRAME_KIND_GRADIENT,
    "evaluation": peer_pb2.FRAME_KIND_EVALUATION,
    "evaluated": peer_pb2.FRAME_KIND_EVALUATED,
}

FrameName = Literal["representation", "gradient", "evaluation", "evaluated"]

RUN_LETTERS = 32

GRPC_PREFIX_BYTES = 5
HTTP2_FRAME_BYTES, HTTP2_HEADER_BYTES = 16_384, 9
TLS_RECORD_BYTES, TLS_HEADER_BYTES = 16_384, 22
SEGMENT_BYTES = 1_448
SEGMENT_HEADER_BYTES = 66
"""Ethernet 14, IPv4 20, TCP 20 and its time stamps 12; a packet then is 1,514 bytes long."""


def tensor_bytes(num_rows: int, width: int, dtype: str) -> int:
    """Return how many bytes of numbers such a tensor has."""
    return num_rows * row_bytes(width, dtype)


def frame_message_bytes(
    kind: FrameName, *, sender: str, step: int, rows: int = 0, width: int = 0, dtype: str = ""
) -> int:
    """Return how long the message of a frame is; without a dtype it has no tensor."""
    frame = peer_pb2.Frame(
        run="0" * RUN_LETTERS, generation=1, step=step, kind=KINDS[kind], sender=sender
    )
    frame.incarnation = 1
    size = frame.ByteSize()
    if not dtype:
        return size
    num_bytes = tensor_bytes(rows, width, dtype)
    tensor = tensor_pb2.Tensor(dtype=DTYPES[dtype], shape=[rows, width]).ByteSize()
    return size + _field(tensor + _field(num_bytes))


def blank_frame(rows: int, width: int, dtype: str) -> bytes:
    """Return the message of a frame whose numbers are all zero."""
    data = bytes(tensor_bytes(rows, width, dtype))
    tensor = tensor_pb2.Tensor(dtype=DTYPES[dtype], shape=[rows, width], data=data)
    return peer_pb2.Frame(
        kind=peer_pb2.FRAME_KIND_REPRESENTATION, tensor=tensor
    ).SerializeToString()


def tcp_bytes(message_bytes: int, *, tls: bool = True) -> int:
    """Return how many bytes TCP carries for a message: gRPC, HTTP/2 and TLS add to it."""
    total = message_bytes + GRPC_PREFIX_BYTES
    total += _parts(total, HTTP2_FRAME_BYTES) * HTTP2_HEADER_BYTES
    if tls:
        total += _parts(total, TLS_RECORD_BYTES) * TLS_HEADER_BYTES
    return total


def link_bytes(num_tcp_bytes: int) -> int:
    """Return how many bytes a link carries for so many of TCP: each packet has headers."""
    return num_tcp_bytes + _parts(num_tcp_bytes, SEGMENT_BYTES) * SEGMENT_HEADER_BYTES


def _parts(num_bytes: int, size: int) -> int:
    return -(-num_bytes // size)


def _field(num_bytes: int) -> int:
    """Return the length of a field with so many bytes in it: a tag, the length, the bytes."""
    return 1 + max(1, _parts(num_bytes.bit_length(), 7)) + num_bytes if num_bytes else 0
