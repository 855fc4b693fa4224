"""Forwards off the event loop: one for all that has gathered while the last one was computed."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor

import torch

INLINE_S = 0.0005
"""What takes no longer than this is computed on the event loop: a thread would cost as much."""

MAX_BATCH_ROWS = 10_000

Forward = Callable[[torch.Tensor], torch.Tensor]


class ForwardBatcher:
    """Turns requests of some rows each into forwards of many rows."""

    def __init__(
        self, forward: Forward, example_row: torch.Tensor, executor: Executor, *, together: bool
    ) -> None:
        self._forward = forward
        self._executor = executor
        self._together = together
        self._inline_rows = _inline_rows(forward, example_row)
        self._waiting: list[tuple[torch.Tensor, asyncio.Future[torch.Tensor]]] = []
        self._busy = False

    def submit(self, rows: torch.Tensor) -> asyncio.Future[torch.Tensor]:
        """Return the outputs of these rows, when they are there."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[torch.Tensor] = loop.create_future()
        if not self._busy and len(rows) <= self._inline_rows:
            _settle(future, self._forward, rows)
            return future
        self._waiting.append((rows, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._next)
        return future

    def _next(self) -> None:
        batch = self._take()
        self._busy = bool(batch)
        if not batch:
            return
        rows = torch.cat([rows for rows, _ in batch]) if len(batch) > 1 else batch[0][0]
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._executor, self._forward, rows)
        done.add_done_callback(lambda done: self._hand_out(batch, done))

    def _take(self) -> list[tuple[torch.Tensor, asyncio.Future[torch.Tensor]]]:
        num_rows, count = 0, 0
        for rows, _ in self._waiting:
            num_rows += len(rows)
            if count and (not self._together or num_rows > MAX_BATCH_ROWS):
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _hand_out(
        self,
        batch: list[tuple[torch.Tensor, asyncio.Future[torch.Tensor]]],
        done: asyncio.Future[torch.Tensor],
    ) -> None:
        error = done.exception()
        start = 0
        for rows, future in batch:
            stop = start + len(rows)
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(done.result()[start:stop])
            start = stop
        self._next()


def _settle(future: asyncio.Future[torch.Tensor], forward: Forward, rows: torch.Tensor) -> None:
    try:
        future.set_result(forward(rows))
    except Exception as error:
        future.set_exception(error)


def _inline_rows(forward: Forward, example_row: torch.Tensor) -> int:
    """Return how many rows are quick enough for the event loop, from a short measurement."""
    few_s = _time(forward, example_row[None])
    many_s = _time(forward, example_row.expand(64, *example_row.shape))
    row_s = max((many_s - few_s) / 63, 1e-9)
    return int(min(max(0.0, (INLINE_S - few_s) / row_s + 1), 256)) if few_s < INLINE_S else 0


def _time(forward: Forward, rows: torch.Tensor) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        forward(rows)
        best = min(best, time.perf_counter() - started)
    return best
