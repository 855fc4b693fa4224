"""The port for peers. It takes no larger messages than the run's settings need, to a factor of two.

gRPC fixes that limit when a server starts, so another one means another server on the same port.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import grpc.aio

from laser_vfl.core.errors import AddressError
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.observability.audit_log import Refused
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.grpc_status import RefusalPacer
from laser_vfl.transport.message_limits import peer_message_bytes, peer_server_options
from laser_vfl.transport.server import Server, start_server

log = logging.getLogger(__name__)

REBIND_S = 5.0
"""How long a run waits until the port is bound again. The attempts go on after that."""

RETRY_S = 0.02

SETTLED_S = 600.0
"""How long the port must have been bound before its limit is lowered."""


class PeerServer:
    """Serves peers at one address for as long as the daemon lives.

    Its limit is a power of two, raised at once and lowered seldom. So a coordinator that keeps
    changing its settings causes a few new bindings of the port, and not one after another.
    """

    address: str
    """Where it listens; it has the real port, also when port 0 was asked for."""

    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        add_calls: Callable[[grpc.aio.Server], None],
        refused: Refused = lambda *_: None,
    ) -> None:
        self._listen = listen
        self._credentials = credentials
        self._add_calls = add_calls
        self._refused = refused
        self._refusals = RefusalPacer()
        self._most_bytes = 0
        """The largest payload that is taken."""
        self._bound_at = 0.0
        self._server: Server | None = None
        self._binding: asyncio.Task[None] | None = None
        self._problem, self._hint = "the port for peers is not bound yet", ""
        """Why the port could not be bound when it was last tried, and what to do about it."""
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self, settings: TrainingSettings | None, num_clients: int) -> None:
        """Listen, with the limits of the settings that are known by now, if any are."""
        self._most_bytes = _power_of_two(peer_message_bytes(settings, num_clients))
        self._server = await self._serve(self._listen)
        self.address = self._server.address
        self._bound_at = time.monotonic()

    async def expect(self, settings: TrainingSettings, num_clients: int) -> None:
        """Take messages as large as a run of these settings needs; not for while it trains.

        When that changes something, streams of peers that predict break, and they open new ones.
        """
        most_bytes = _power_of_two(peer_message_bytes(settings, num_clients))
        may_lower = time.monotonic() > self._bound_at + SETTLED_S
        if most_bytes > self._most_bytes or (most_bytes < self._most_bytes and may_lower):
            self._most_bytes = most_bytes
            log.debug("serving peers anew, with messages up to %d bytes", self._most_bytes)
            self._close()
        if self._server is not None:
            return
        if self._binding is None or self._binding.done():
            self._binding = asyncio.create_task(self._bind())
        done, _ = await asyncio.wait([self._binding], timeout=REBIND_S)
        if not done:
            raise AddressError(self._problem, hint=self._hint)
        self._binding.result()

    async def stop(self) -> None:
        """Close the port."""
        if self._binding is not None:
            self._binding.cancel()
            await asyncio.gather(self._binding, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    def _close(self) -> None:
        """Let go of the port; calls that are under way have a moment to end."""
        server, self._server = self._server, None
        if server is not None:
            stopping = asyncio.create_task(server.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    async def _bind(self) -> None:
        """Bind the port again, however long somebody else has it."""
        while self._server is None:
            await asyncio.sleep(RETRY_S)
            most_bytes = self._most_bytes
            try:
                server = await self._serve(self.address)
            except AddressError as error:
                self._problem, self._hint = error.message, error.hint
                continue
            if most_bytes == self._most_bytes:
                self._server, self._bound_at = server, time.monotonic()
            else:
                await server.stop()

    async def _serve(self, listen: str) -> Server:
        options = peer_server_options(self._most_bytes)
        return await start_server(
            listen,
            self._credentials,
            self._add_calls,
            options,
            refused=self._refused,
            refusals=self._refusals,
        )


def _power_of_two(num_bytes: int) -> int:
    return 1 << (num_bytes - 1).bit_length()
