"""The calls between clients. Frames are serialised by their sender: once for all who get them."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from laser_vfl.core.release import __version__
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import peer_pb2
from laser_vfl.v1.coordinator_pb2 import GreetRequest

_SERVICE = "laser_vfl.v1.Peer"
_MORE = bytes([peer_pb2.Frame.MORE_FIELD_NUMBER << 3 | 2])
"""The tag of `more` in a serialised frame: something with a length."""

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
    # A field that is appended to a serialised message belongs to it.
    return b"".join([first, *(part for other in others for part in _as_more(other))])


def _as_more(frame: bytes) -> tuple[bytes, bytes]:
    """Return what stands before a frame as a further one of a message, and the frame."""
    length, head = len(frame), bytearray(_MORE)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head), frame


def apart(message: peer_pb2.Frame) -> list[peer_pb2.Frame]:
    """Return the frames of a message, in their order. The first one keeps the others as `more`."""
    return [message, *message.more]


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
        return peer_pb2.Frame.FromString(data)
    except DecodeError:
        return None


def add_exchange(server: grpc.aio.Server, behaviour: Behaviour) -> None:
    """Serve Exchange: `behaviour` reads frames and writes serialised frames."""
    handler: Any = grpc.stream_stream_rpc_method_handler(
        behaviour,
        request_deserializer=_parsing(peer_pb2.Frame.FromString),
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
