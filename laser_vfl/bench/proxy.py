"""A TCP proxy that does to a connection what networks do: delay, narrowness, silence, a cut.

It runs in a thread of its own. Its methods may be called from any other, and have taken effect
when they return.
"""

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

from laser_vfl.bench.proxy_link import Conditions, Link, close

CALL_S = 10.0


class Proxy:
    """Listens on loopback in front of a target, which may also be named later."""

    def __init__(self, target: str = "", port: int = 0) -> None:
        self.target = target
        self._conditions = Conditions()
        self._links: set[Link] = set()
        self._num_connections = 0
        self._num_cut = 0
        self._reserved = _bound(port)  # nobody else gets the port while nobody listens on it
        self._port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()
        self._reserved.close()

    @property
    def address(self) -> str:
        """Where to connect to, the same for as long as this lives."""
        return f"127.0.0.1:{self._port}"

    @property
    def num_connections(self) -> int:
        """Connections that were taken."""
        return self._num_connections

    @property
    def num_bytes(self) -> int:
        """Bytes that were handed on, both ways."""
        return self._conditions.num_bytes

    @property
    def num_bytes_lost(self) -> int:
        """Bytes that a black hole has swallowed, both ways."""
        return self._conditions.num_bytes_lost

    @property
    def delayed_s(self) -> float:
        """How much later than without a delay all that was handed on has arrived, added up."""
        return self._conditions.delayed_s

    @property
    def num_cut(self) -> int:
        """Connections that were closed by a cut, or by a heal after a black hole."""
        return self._num_cut

    def delay(self, seconds: float, jitter: float = 0.0, seed: int = 0) -> None:
        """Have all bytes arrive later by this and up to `jitter` more, in order, each way."""

        async def change() -> None:
            self._conditions.delay_s, self._conditions.jitter_s = seconds, jitter
            self._conditions.rng = random.Random(seed)

        self._call(change)

    def throttle(self, bytes_per_s: float) -> None:
        """Let no more than this pass, each way, all connections together."""

        async def change() -> None:
            self._conditions.bytes_per_s = bytes_per_s

        self._call(change)

    def black_hole(self) -> None:
        """Keep connections open and take new ones, and hand on nothing, not even their end."""

        async def change() -> None:
            self._conditions.is_black_hole = True
            for link in self._links:
                await link.swallow()

        self._call(change)

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._cut)

    def heal(self) -> None:
        """Be an ordinary connection again; those that a black hole held are reset."""

        async def change() -> None:
            if self._conditions.is_black_hole:
                await self._reset_links()
            self._conditions.heal()
            await self._listen()

        self._call(change)

    def _call(self, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def make() -> None:
            await change()
            self._conditions.tell()

        asyncio.run_coroutine_threadsafe(make(), self._loop).result(CALL_S)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = _bound(self._port)
            self._listener.listen(128)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            caller, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._num_connections += 1
        link = Link(caller, self._conditions, self._links.discard)
        self._links.add(link)
        link.start(self.target)

    async def _cut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._reset_links()

    async def _reset_links(self) -> None:
        for link in list(self._links):
            self._num_cut += 1
            await link.reset()


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        close(bound)
        raise
    return bound
