"""Peer.Exchange with frames serialised by the sender: once, however many peers get them."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from laser_vfl.v1 import peer_pb2

_SERVICE, _METHOD = "laser_vfl.v1.Peer", "Exchange"

Behaviour = Callable[[Any, Any], Awaitable[None]]


def open_exchange(channel: grpc.aio.Channel) -> Any:
    """Call Exchange: writes serialised frames, reads frames."""
    call: Any = channel.stream_stream(
        f"/{_SERVICE}/{_METHOD}",
        request_serializer=None,
        response_deserializer=peer_pb2.Frame.FromString,
    )
    return call()


def add_exchange(server: grpc.aio.Server, behaviour: Behaviour) -> None:
    """Serve Exchange: `behaviour` reads frames and writes serialised frames."""
    handler: Any = grpc.stream_stream_rpc_method_handler(
        behaviour, request_deserializer=peer_pb2.Frame.FromString, response_serializer=None
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),)
    )
