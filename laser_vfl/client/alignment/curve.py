"""What a client blinds ids with, on as many threads as it has."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from laser_vfl.data import POINT_BYTES, hash_to_curve, multiply

POINTS_AT_ONCE = 1024
"""How many points go into one message, and are worked on by one thread at a time."""

TABLE = "serve"
"""The name that is hashed with an id: release 0.1.0 sent a list for each table."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Curve:
    """What this client blinds with: its scalar, the domain of its ids, and threads to do it."""

    scalar: bytes
    federation: str
    run: str
    threads: Executor
    num_threads: int
    advance: Callable[[int], None] = lambda num_points: None
    """Is told of points that have been multiplied."""

    async def blind(self, ids: Sequence[str]) -> bytearray:
        """Return ids as points under this client's scalar."""

        def work(part: Sequence[str]) -> bytes:
            points = hash_to_curve(part, federation=self.federation, run=self.run, table=TABLE)
            return multiply(points, self.scalar)

        blinded = bytearray()
        async for part in self._in_order(work, pieces(ids, POINTS_AT_ONCE)):
            blinded += part
        return blinded

    def add_scalar(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Multiply points, chunk by chunk, in their order."""
        return self._in_order(lambda points: multiply(points, self.scalar), chunks)

    async def _in_order(
        self, work: Callable[[Item], bytes], items: AsyncIterator[Item]
    ) -> AsyncIterator[bytes]:
        """Work on as many items at a time as there are threads, and a little ahead."""
        loop = asyncio.get_running_loop()
        under_way: deque[asyncio.Future[bytes]] = deque()
        try:
            async for item in items:
                under_way.append(loop.run_in_executor(self.threads, work, item))
                if len(under_way) > self.num_threads:
                    yield await self._next(under_way)
            while under_way:
                yield await self._next(under_way)
        finally:
            for future in under_way:
                future.cancel()

    async def _next(self, under_way: deque[asyncio.Future[bytes]]) -> bytes:
        products = await under_way.popleft()
        self.advance(len(products) // POINT_BYTES)
        return products


async def pieces(items: Any, size: int) -> AsyncIterator[Any]:
    """Cut a list, or bytes, into parts of a size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
