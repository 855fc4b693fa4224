"""The port for peers. It takes no larger messages than the run's settings need.

gRPC fixes that limit when a server starts, so another one means another server on the same port.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import grpc.aio

from laser_vfl.core.errors import AddressError
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.server import Server, start_server
from laser_vfl.wire.sizes import Options, peer_server_options
from laser_vfl.wire.status import Refused

log = logging.getLogger(__name__)

REBIND_S = 5.0
"""How long to try to get a port back that was ours a moment ago."""

RETRY_S = 0.02


class PeerServer:
    """Serves peers at one address for as long as the daemon lives."""

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
        self._options: Options = []
        self._server: Server | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self, settings: TrainingSettings | None, num_clients: int) -> None:
        """Listen, with the limits of the settings that are known by now, if any are."""
        options = peer_server_options(settings, num_clients)
        self._server = await self._serve(self._listen, options)
        self.address, self._options = self._server.address, options

    async def expect(self, settings: TrainingSettings, num_clients: int) -> None:
        """Take messages as large as a run of these settings needs; not for while it trains.

        When that changes something, streams of peers that predict break, and they open new ones.
        """
        options = peer_server_options(settings, num_clients)
        if options == self._options or self._server is None:
            return
        log.debug("serving peers anew, with %s", options)
        stopping = asyncio.create_task(self._server.stop())
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        self._server = None
        give_up_at = time.monotonic() + REBIND_S
        while self._server is None:
            await asyncio.sleep(RETRY_S)
            try:
                self._server = await self._serve(self.address, options)
            except AddressError:
                if time.monotonic() > give_up_at:
                    raise
        self._options = options

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            await self._server.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    async def _serve(self, listen: str, options: Options) -> Server:
        return await start_server(
            listen, self._credentials, self._add_calls, options, refused=self._refused
        )
