"""The port for peers in a process of its own: bounded_server BOUNDS, as JSON.

It says where it listens. Each line that it reads then is settings to expect, which it confirms.
"""

import asyncio
import json
import sys
from typing import Any

import grpc.aio

from laser_vfl.client.peers import peer_server
from laser_vfl.client.peers.peer_server import PeerServer
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport import server as server_module
from laser_vfl.transport.frames import add_exchange
from laser_vfl.v1 import peer_pb2 as pb


async def _measure(requests: object, context: Any) -> None:
    """Answer each frame with how much was in it."""
    while (frame := await context.read()) is not grpc.aio.EOF:
        await context.write(pb.Frame(step=len(frame.tensor.data)).SerializeToString())


async def serve() -> None:
    server = PeerServer(
        "127.0.0.1:0", Credentials(), lambda grpc_server: add_exchange(grpc_server, _measure)
    )
    await server.start(None, 0)
    print(server.address, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await server.expect(TrainingSettings.model_validate_json(line), 2)
        print(server.address, flush=True)
    await server.stop()


if __name__ == "__main__":
    bounds = dict(server_module.SERVER_BOUNDS)
    changes = json.loads(sys.argv[1])
    assert changes.keys() <= bounds.keys()
    server_module.SERVER_BOUNDS = list((bounds | changes).items())
    peer_server.SETTLED_S = 0.0  # so that a limit is lowered at once
    asyncio.run(serve())
