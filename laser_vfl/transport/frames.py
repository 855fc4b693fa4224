"""The calls between clients. Frames are serialised by their sender: once for all who get them."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from laser_vfl.core.release import __version__
from laser_vfl.transport.protobuf_fields import field_head, read_varint
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import peer_pb2
from laser_vfl.v1.coordinator_pb2 import GreetRequest

_SERVICE = "laser_vfl.v1.Peer"
_MORE_FIELD, _TENSOR_FIELD = peer_pb2.Frame.MORE_FIELD_NUMBER, peer_pb2.Frame.TENSOR_FIELD_NUMBER

MAX_FRAMES = 32
"""So many frames travel in one message at most."""

MAX_FIELDS = 16
"""A frame and a tensor have fewer, and each of them once."""

Behaviour = Callable[[Any, Any], Awaitable[Any]]
Message = TypeVar("Message")

_num_read: ContextVar[int] = ContextVar("num_read", default=0)
_num_written: ContextVar[int] = ContextVar("num_written", default=0)


def bytes_read() -> int:
    """Return how long the last message was that this task has read from a peer."""
    return _num_read.get()


def bytes_written() -> int:
    """Return how long the last message was that this task has had serialised for a peer."""
    return _num_written.get()


def _parsing(parse: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
    """Take note of lengths: gRPC parses in the task that reads, and shows the message alone."""

    def parsed(data: bytes) -> Message:
        _num_read.set(len(data))
        return parse(data)

    return parsed


def _serialising(serialise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def serialised(message: Any) -> bytes:
        data = serialise(message)
        _num_written.set(len(data))
        return data

    return serialised


def together(frames: Sequence[bytes]) -> bytes:
    """Return one message with serialised frames, for the first to have the others as `more`."""
    first, *others = frames
    parts = [first]
    for other in others:  # a field that is appended to a serialised message belongs to it
        parts += [field_head(_MORE_FIELD, len(other)), other]
    return b"".join(parts)


def apart(message: peer_pb2.Frame) -> list[peer_pb2.Frame]:
    """Return the frames of a message, in their order. The first one keeps the others as `more`."""
    return [message, *message.more]


def parsed_frame(data: bytes) -> peer_pb2.Frame:
    """Return a message with frames. One that has more parts than frames have is not parsed.

    An empty part takes two bytes on the wire, a hundred in memory, and its time on the event loop.
    """
    if not _has_few_parts(memoryview(data), MAX_FRAMES - 1):
        raise DecodeError("a message has more parts than frames have")
    return peer_pb2.Frame.FromString(data)


def _has_few_parts(data: memoryview, max_more: int) -> bool:
    """Whether a serialised frame, or the tensor in one, has at most so many further frames."""
    at = num_fields = num_more = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            field, wire_type = tag >> 3, tag & 7
            num_more += field == _MORE_FIELD
            num_fields += 1
            if num_more > max_more or num_fields - num_more > MAX_FIELDS:
                return False
            if wire_type == 0:
                _, at = read_varint(data, at)
            elif wire_type == 2:
                length, at = read_varint(data, at)
                part = data[at : at + length]
                if field in (_MORE_FIELD, _TENSOR_FIELD) and not _has_few_parts(part, 0):
                    return False
                at += length
            elif wire_type in (1, 5):
                at += 8 if wire_type == 1 else 4
            else:
                return False
    except IndexError:
        return False
    return at == len(data)


def open_exchange(channel: grpc.aio.Channel) -> Any:
    """Call Exchange: writes serialised frames, reads frames; None is something else."""
    call: Any = channel.stream_stream(
        f"/{_SERVICE}/Exchange",
        request_serializer=None,
        response_deserializer=_parsing(_frame),
    )
    return call()


def _frame(data: bytes) -> peer_pb2.Frame | None:
    """Return None for what is no frame; gRPC would do so too, and fill the log."""
    try:
        return parsed_frame(data)
    except DecodeError:
        return None


def add_exchange(server: grpc.aio.Server, behaviour: Behaviour) -> None:
    """Serve Exchange: `behaviour` reads frames and writes serialised frames."""
    handler: Any = grpc.stream_stream_rpc_method_handler(
        behaviour,
        request_deserializer=_parsing(parsed_frame),
        response_serializer=None,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"Exchange": handler}),)
    )


def open_represent(channel: grpc.aio.Channel) -> Any:
    """Call Represent: writes serialised requests, reads responses."""
    call: Any = channel.stream_stream(
        f"/{_SERVICE}/Represent",
        request_serializer=None,
        response_deserializer=_parsing(peer_pb2.RepresentResponse.FromString),
    )
    return call()


def add_represent(server: grpc.aio.Server, behaviour: Behaviour) -> None:
    """Serve Represent: `behaviour` reads requests and writes responses."""
    handler: Any = grpc.stream_stream_rpc_method_handler(
        behaviour,
        request_deserializer=_parsing(peer_pb2.RepresentRequest.FromString),
        response_serializer=_serialising(peer_pb2.RepresentResponse.SerializeToString),
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"Represent": handler}),)
    )


def open_hand_on(channel: grpc.aio.Channel) -> Any:
    """Call HandOn: writes requests, and is awaited for the response."""
    call: Any = channel.stream_unary(
        f"/{_SERVICE}/HandOn",
        request_serializer=_serialising(peer_pb2.HandOnRequest.SerializeToString),
        response_deserializer=peer_pb2.HandOnResponse.FromString,
    )
    return call()


def add_hand_on(server: grpc.aio.Server, behaviour: Behaviour) -> None:
    """Serve HandOn: `behaviour` reads requests and returns the response."""
    handler: Any = grpc.stream_unary_rpc_method_handler(
        behaviour,
        request_deserializer=_parsing(peer_pb2.HandOnRequest.FromString),
        response_serializer=peer_pb2.HandOnResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"HandOn": handler}),)
    )


def add_greet(server: grpc.aio.Server, federation: str, client: str) -> None:
    """Serve Greet: tell who this is, to whomever the authorizer lets in."""

    async def greet(request: GreetRequest, context: Any) -> peer_pb2.PeerGreetResponse:
        return peer_pb2.PeerGreetResponse(
            federation=federation,
            client=client,
            release=__version__,
            protocol_version=PROTOCOL_VERSION,
            time=time.time(),
        )

    handler: Any = grpc.unary_unary_rpc_method_handler(
        greet,
        request_deserializer=GreetRequest.FromString,
        response_serializer=peer_pb2.PeerGreetResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"Greet": handler}),)
    )
