"""A coordinator with the right certificate that says what no coordinator of ours would say."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from laser_vfl.core.errors import NotRegistered
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.transport.message_limits import COORDINATOR_OPTIONS
from laser_vfl.transport.server import start_server
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server
from tests.support.daemons.harness import Authority

INCARNATION = 7_777
"""What every answer to a registration gives, and no coordinator of ours has given before."""

Says = Callable[[int], pb.RegisterResponse]
"""What is answered to a registration, by how many there were before."""

Tells = Callable[[pb.Heartbeat], pb.Directive]
"""What a client in a session is told after a heartbeat."""


class HostileCoordinator(CoordinatorServicer):
    """Answers registrations as told. In the session that follows it knows nobody, or tells lies."""

    def __init__(self, says: Says, tells: Tells | None) -> None:
        self._says = says
        self._tells = tells
        self.num_heartbeats = 0
        """How many came after something was told."""
        self.num_registered = 0
        self.num_sessions = 0
        """How many were opened by somebody who took an answer to a registration of this one."""

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        """Say what no client should believe."""
        self.num_registered += 1
        return self._says(self.num_registered - 1)

    async def Session(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        """Have the client register anew, at once, or tell it something after each heartbeat."""
        heartbeats = aiter(requests)
        first = await anext(heartbeats)
        self.num_sessions += first.incarnation == INCARNATION
        if self._tells is None:
            raise NotRegistered("who are you?")
        await context.write(self._tells(first))
        async for heartbeat in heartbeats:
            self.num_heartbeats += 1
            await context.write(self._tells(heartbeat))


@contextmanager
def hostile_coordinator(
    address: str, authority: Authority, says: Says, tells: Tells | None = None
) -> Iterator[HostileCoordinator]:
    """Serve at an address, in a thread, until the end of the block."""
    tls = {key: Path(path) for key, path in authority.issue("coordinator").items()}
    credentials = load_credentials(CredentialFiles(**tls), authority.identity("coordinator"))
    coordinator = HostileCoordinator(says, tells)
    loop, is_up = asyncio.new_event_loop(), threading.Event()
    is_over = asyncio.Event()

    def add(server: grpc.aio.Server) -> None:
        add_CoordinatorServicer_to_server(coordinator, server)

    async def serve() -> None:
        server = await start_server(address, credentials, add, COORDINATOR_OPTIONS)
        is_up.set()
        await is_over.wait()
        await server.stop(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(10), "the hostile coordinator does not serve"
        yield coordinator
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()
