"""Every call of every service, from the descriptors, and messages made up for it."""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from hypothesis import strategies as st

from laser_vfl.v1 import coordinator_pb2, peer_pb2, prediction_pb2

TIMEOUT_S = 10.0

_SERVICES = {
    "coordinator": [coordinator_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR],
    "peers": [peer_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR],
    "predictions": [prediction_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR],
}


def _methods(files: Iterable[Any]) -> dict[str, MethodDescriptor]:
    services = [service for file in files for service in file.services_by_name.values()]
    return {f"/{s.full_name}/{m.name}": m for s in services for m in s.methods}


METHODS = {door: _methods(files) for door, files in _SERVICES.items()}
"""What can be called at each door."""

_BY_PATH = {path: method for methods in METHODS.values() for path, method in methods.items()}


def call(
    channel: grpc.Channel, path: str, contents: Iterable[bytes], timeout_s: float = TIMEOUT_S
) -> object:
    """Send bytes to a call: all of them if it takes a stream, else the first."""
    method = _BY_PATH[path]
    make: Any = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    sent = iter(contents) if method.client_streaming else next(iter(contents))
    answer = make(path)(sent, timeout=timeout_s)
    return list(answer) if method.server_streaming else answer


_TEXTS = ["", "bank", "shop", "trial", "0" * 32, "..", "../../etc", "\0", "x" * 5000, "=1+1", "é\n"]
_WHOLE = [0, 1, 2, 3, 4, 77, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
_REAL = [0.0, -1.0, 1e-300, 1e308, float("nan"), float("inf"), -float("inf")]
_BYTES = [b"", bytes(31), bytes(32), bytes(64), b"\xff" * 100, bytes(1 << 16)]
_BITS = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}


def messages(
    descriptor: Descriptor, within: tuple[Descriptor, ...] = ()
) -> st.SearchStrategy[Message]:
    """Make messages of a type: any field may be there, with values that nobody would send.

    A message that may hold others of its type holds one more level of them.
    """
    within = (*within, descriptor)
    fields = {
        field.name: st.none() | _values(field, within)
        for field in descriptor.fields
        if field.message_type is None or within.count(field.message_type) < 2
    }
    kind = GetMessageClass(descriptor)
    return st.fixed_dictionaries(fields).map(
        lambda values: kind(**{name: value for name, value in values.items() if value is not None})
    )


def requests(method: MethodDescriptor) -> st.SearchStrategy[list[bytes]]:
    """Make what is sent to a call: messages, or bytes that are none."""
    made = messages(method.input_type).map(lambda message: message.SerializeToString())
    most = 3 if method.client_streaming else 1
    return st.lists(made | made | st.binary(max_size=200), min_size=1, max_size=most)


def _values(field: FieldDescriptor, within: tuple[Descriptor, ...]) -> st.SearchStrategy[Any]:
    one = _value(field, within)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _value(field: FieldDescriptor, within: tuple[Descriptor, ...]) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return messages(field.message_type, within)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([0, 1, 2, 3, 4, 5, 77, -1])
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.sampled_from(_REAL)
    if kind in _BITS:
        return st.sampled_from([number for number in _WHOLE if number < 2 ** _BITS[kind]])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(_BYTES)
    assert field.type == FieldDescriptor.TYPE_STRING, field.full_name
    return st.sampled_from(_TEXTS)
