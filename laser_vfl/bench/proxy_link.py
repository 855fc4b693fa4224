"""One connection through the proxy: what is read on one side is written on the other, in time."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

CHUNK = 1 << 16
MAX_CHUNKS = 256
"""Chunks under way in one direction; then its source has to wait."""
CONNECT_S = 5.0
PIECES_PER_S = 200
"""A narrow connection passes small pieces evenly, not large ones now and then."""
LATE_S = 0.02
"""What a timer that comes late may make up for, so that a connection is as wide as it should be."""


Chunks = asyncio.Queue[tuple[float, float, bytes]]
"""What is under way in one direction: when it was taken, when it is due, and the bytes."""


class Conditions:
    """How the proxy treats bytes at the moment, and what has become of them."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.num_bytes_lost = 0
        self.delayed_s = 0.0
        self.healed_at = 0.0
        self._changed = asyncio.Event()
        self._clear()

    def _clear(self) -> None:
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self.rng = random.Random(0)
        self.bytes_per_s: float | None = None
        self.is_black_hole = False
        self._free_at = [0.0, 0.0]

    def heal(self) -> None:
        """Be normal; what is under way arrives at once."""
        self._clear()
        self.healed_at = _now()

    def tell(self) -> None:
        """Wake all who wait, as something has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def due_at(self) -> float:
        """When something may arrive that sets out now."""
        return _now() + self.delay_s + self.rng.uniform(0.0, self.jitter_s)

    def piece_bytes(self) -> int:
        return CHUNK if self.bytes_per_s is None else max(1, int(self.bytes_per_s / PIECES_PER_S))

    async def room_for(self, num_bytes: int, direction: int, due_at: float) -> None:
        """Wait until so many bytes, due at a moment, have had the time that they need."""
        if self.bytes_per_s is not None:
            begins = max(due_at, self._free_at[direction], _now() - LATE_S)
            self._free_at[direction] = begins + num_bytes / self.bytes_per_s
            await self.until(self._free_at[direction])

    async def until(self, moment: float) -> None:
        """Wait for a moment, or less when something changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(moment):
                await self._changed.wait()


class Link:
    """A caller's connection, and the one to the target that belongs to it."""

    def __init__(
        self, caller: socket.socket, conditions: Conditions, ended: Callable[["Link"], None]
    ) -> None:
        self._sockets = [caller]
        self._conditions = conditions
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_under_way = 0
        self._num_open = 2
        caller.setblocking(False)

    def start(self, target: str) -> None:
        if self._conditions.is_black_hole:
            self._spawn(self._swallow(self._sockets[0]))
        else:
            self._spawn(self._connect(target))

    async def swallow(self) -> None:
        """Hand on nothing more, also of what is under way."""
        await self._stop()
        self._conditions.num_bytes_lost += self._num_under_way
        self._num_under_way = 0
        for one in self._sockets:
            self._spawn(self._swallow(one))

    async def reset(self) -> None:
        """Close both sides as a broken connection is closed."""
        await self._stop()
        self._close()

    async def _stop(self) -> None:
        """End all tasks, before anything is done to the sockets that they use."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _break(self) -> None:
        """Reset from within one of the tasks."""
        self._spawn(self._reset_others())

    async def _reset_others(self) -> None:
        self._tasks.discard(asyncio.current_task())
        await self.reset()

    def _close(self, *, with_reset: bool = True) -> None:
        for one in self._sockets:
            close(one, with_reset=with_reset)
        self._sockets = []
        self._ended(self)

    async def _connect(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        daemon = socket.socket()
        self._sockets.append(daemon)
        daemon.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(daemon, (host, int(port)))
        except (OSError, ValueError):
            self._break()
            return
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller = self._sockets[0]
        for direction, (source, sink) in enumerate(((caller, daemon), (daemon, caller))):
            queue: Chunks = asyncio.Queue(MAX_CHUNKS)
            self._spawn(self._take(source, queue))
            self._spawn(self._hand_on(queue, sink, direction))

    async def _take(self, source: socket.socket, queue: Chunks) -> None:
        """Read to the end, and note when each part may arrive: never before an earlier one."""
        due_at = 0.0
        data = b"-"
        while data:
            try:
                data = await asyncio.get_running_loop().sock_recv(source, CHUNK)
            except OSError:
                self._break()
                return
            self._num_under_way += len(data)
            due_at = max(due_at, self._conditions.due_at())
            await queue.put((_now(), due_at, data))

    async def _hand_on(self, queue: Chunks, sink: socket.socket, direction: int) -> None:
        conditions = self._conditions
        loop = asyncio.get_running_loop()
        data = b"-"
        while data:
            taken_at, due_at, data = await queue.get()
            while _now() < due_at and taken_at >= conditions.healed_at:
                await conditions.until(due_at)
            conditions.delayed_s += min(_now(), due_at) - taken_at
            at = 0
            try:
                while at < len(data):
                    piece = data[at : at + conditions.piece_bytes()]
                    await conditions.room_for(len(piece), direction, due_at)
                    await loop.sock_sendall(sink, piece)
                    conditions.num_bytes += len(piece)
                    self._num_under_way -= len(piece)
                    at += len(piece)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
            except OSError:
                self._break()
                return
        self._num_open -= 1
        if not self._num_open:
            self._close(with_reset=False)

    async def _swallow(self, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := await asyncio.get_running_loop().sock_recv(source, CHUNK):
                self._conditions.num_bytes_lost += len(data)


def close(one: socket.socket, *, with_reset: bool = True) -> None:
    """Close a socket; with a reset, whatever it has not sent is dropped."""
    if with_reset:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
