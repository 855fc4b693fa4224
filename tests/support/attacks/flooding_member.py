"""A member that trains as it should, and floods the others meanwhile.

flooding_member HABIT client …

Everything but its habit is the real client.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc

from laser_vfl.cli import main
from laser_vfl.client.peers.peer_mesh import PeerMesh
from laser_vfl.client.session.coordinator_session import Session
from laser_vfl.security.identity import client_of
from laser_vfl.transport.frames import open_exchange
from laser_vfl.transport.reloading_channel import ReloadingChannel
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1 import peer_pb2
from tests.support.attacks.unruly_client import say

FLOODED_S = 20.0
NOBODY = 10**6


def heartbeats() -> None:
    """Send heartbeats as fast as the stream takes them."""
    is_flooding: list[float] = []

    async def without_end(session: Session) -> AsyncIterator[pb.Heartbeat]:
        status = session._status
        while status.state != pb.CLIENT_STATE_GONE:
            serving = session._serving.status()
            status.model_run, status.naming = serving.model_run, serving.naming
            session._progress.describe(status)
            yield status
            if status.state == pb.CLIENT_STATE_RUNNING and not is_flooding:
                is_flooding.append(time.monotonic())
                say("floods")
            is_over = is_flooding and time.monotonic() > is_flooding[0] + FLOODED_S
            await asyncio.sleep(0 if is_flooding and not is_over else 0.1)
        yield status

    Session._heartbeats = without_end  # type: ignore[method-assign]


def streams() -> None:
    """Open one stream after another to each peer besides the right one, and cut it at once."""
    begin = PeerMesh.begin
    floods: list[asyncio.Task[None]] = []

    async def flood(mesh: PeerMesh, peer: Any) -> None:
        to = client_of(mesh._credentials.federation, peer.name)
        channel = ReloadingChannel(peer.address, mesh._credentials, to, mesh._options)
        hello = peer_pb2.Frame.FromString(mesh.hello(peer))
        hello.incarnation += NOBODY  # or it would take the place of the right stream
        while not mesh.are_up().get(peer.name):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        say("floods")
        until = time.monotonic() + FLOODED_S
        while time.monotonic() < until:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                call = open_exchange(channel.channel)
                await call.write(hello.SerializeToString())
                call.cancel()
            await asyncio.sleep(0)

    def begin_and_flood(mesh: PeerMesh, view: Any) -> None:
        begin(mesh, view)
        if not floods:
            floods.extend(asyncio.create_task(flood(mesh, peer)) for peer in view.peers)

    PeerMesh.begin = begin_and_flood  # type: ignore[method-assign]


HABITS = {"heartbeats": heartbeats, "streams": streams, "none": lambda: None}

if __name__ == "__main__":
    HABITS[sys.argv.pop(1)]()
    main()
