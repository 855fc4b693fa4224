"""Asking daemons who they are; this changes nothing at them."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from laser_vfl.core.release import __version__
from laser_vfl.remote.calls import Access, call, open_channel
from laser_vfl.security.identity import Identity
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1.coordinator_pb2 import GreetRequest
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub

TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Greeting:
    """The identity that a daemon claims; `client` is empty for a coordinator.

    `clock_offset_s` is how far its clock is ahead of ours. Only a coordinator has `problem`, why it
    would not let us register, and `addresses`, where it last saw each client.
    """

    federation: str
    client: str
    release: str
    protocol_version: int
    clock_offset_s: float
    problem: str
    addresses: dict[str, str]


def greet_coordinator(address: str, access: Access, me: Identity) -> Greeting:
    """Ask a coordinator who it is and whether `me` could register; `me` may be its owner."""
    with closing(open_channel(address, access)) as channel:
        response, offset_s = _timed(CoordinatorStub(channel).Greet, address, me)
    return Greeting(
        response.federation,
        "",
        response.release,
        response.protocol_version,
        offset_s,
        response.problem,
        {one.client: one.address for one in response.addresses},
    )


def greet_peer(address: str, access: Access, me: Identity) -> Greeting:
    """Ask a client who it is."""
    with closing(open_channel(address, access)) as channel:
        response, offset_s = _timed(PeerStub(channel).Greet, address, me)
    return Greeting(
        response.federation,
        response.client,
        response.release,
        response.protocol_version,
        offset_s,
        "",
        {},
    )


def _timed(ask: Any, address: str, me: Identity) -> tuple[Any, float]:
    """Return the answer, and how far the other clock is ahead, half the round trip subtracted."""
    request = GreetRequest(
        federation=me.federation,
        client=me.name,
        protocol_version=PROTOCOL_VERSION,
        release=__version__,
    )
    started_at = time.time()
    response = call(ask, request, address, TIMEOUT_S)
    return response, response.time - (started_at + time.time()) / 2
