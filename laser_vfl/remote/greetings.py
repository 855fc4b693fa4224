"""Asking daemons who they are, in plain Python; this changes nothing at them."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from laser_vfl.core.release import __version__
from laser_vfl.remote.calls import Access, call, open_channel
from laser_vfl.v1.coordinator_pb2 import GreetRequest
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from laser_vfl.wire.identity import Identity
from laser_vfl.wire.protocol import PROTOCOL_VERSION

TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Greeting:
    """Who answers: `client` is empty for a coordinator.

    `clock_offset_s` is how far its clock is ahead of ours. Of a coordinator alone: `problem` is why
    it would not have us, `addresses` where it last saw everybody.
    """

    federation: str
    client: str
    release: str
    protocol_version: int
    clock_offset_s: float
    problem: str
    addresses: dict[str, str]


def greet_coordinator(address: str, access: Access, me: Identity) -> Greeting:
    """Ask a coordinator who it is and whether it would have us; `me` may be its owner."""
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
    """Return what is answered, and how far the other clock is ahead, the way there and back cut."""
    request = GreetRequest(
        federation=me.federation,
        client=me.name,
        protocol_version=PROTOCOL_VERSION,
        release=__version__,
    )
    started_at = time.time()
    response = call(ask, request, address, TIMEOUT_S)
    return response, response.time - (started_at + time.time()) / 2
