"""One end of a stream that ends in some way: stream_end call HABIT PORT, or serve HABIT.

HABIT is a name from `HABITS`. What the other end made of it is the test's to say.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

METHOD = "/laser_vfl.v1.Peer/Exchange"
LIMIT = 1 << 20
"""What the test takes."""

SMALL, LARGE, HUGE = bytes(10), bytes(LIMIT - 1000), bytes(8 * LIMIT)
SOON_S = 0.005
NO_LIMITS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

Write = Callable[[bytes], Awaitable[None]]


async def _oversize(write: Write, stream: Any) -> None:
    await write(HUGE)
    await asyncio.Event().wait()


async def _oversize_and_gone(write: Write, stream: Any) -> None:
    await write(HUGE)
    await asyncio.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


async def _killed(write: Write, stream: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _killed_while_it_writes(write: Write, stream: Any) -> None:
    asyncio.get_running_loop().call_later(SOON_S, os.kill, os.getpid(), signal.SIGKILL)
    while True:
        await write(LARGE)


async def _cancelled(write: Write, stream: Any) -> None:
    stream.cancel()


async def _cancelled_while_it_writes(write: Write, stream: Any) -> None:
    asyncio.get_running_loop().call_later(SOON_S, stream.cancel)
    while True:
        await write(LARGE)


async def _half_closed(write: Write, stream: Any) -> None:
    await stream.done_writing()


async def _aborted(write: Write, stream: Any) -> None:
    await stream.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")


async def _pretended(write: Write, stream: Any) -> None:
    text = "CLIENT: Received message larger than max (8 vs. 1)"
    await stream.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


async def _ended(write: Write, stream: Any) -> None:
    pass


HABITS = {
    "oversize": _oversize,
    "gzip bomb": _oversize,
    "oversize and gone": _oversize_and_gone,
    "killed": _killed,
    "killed while it writes": _killed_while_it_writes,
    "cancelled": _cancelled,
    "cancelled while it writes": _cancelled_while_it_writes,
    "half-closed": _half_closed,
    "aborted": _aborted,
    "pretended": _pretended,
    "ended": _ended,
}


def _compression(habit: str) -> grpc.Compression:
    return grpc.Compression.Gzip if habit == "gzip bomb" else grpc.Compression.NoCompression


async def _call(habit: str, port: str) -> None:
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", options=NO_LIMITS, compression=_compression(habit)
    ) as channel:
        stream: Any = channel.stream_stream(METHOD)()
        await stream.write(SMALL)
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError):
            await HABITS[habit](stream.write, stream)
            await stream.read()


async def _serve(habit: str) -> None:
    async def exchange(_: Any, context: Any) -> None:
        await context.write(SMALL)
        await HABITS[habit](context.write, context)

    server = grpc.aio.server(options=NO_LIMITS, compression=_compression(habit))
    handler: Any = grpc.stream_stream_rpc_method_handler(exchange)
    service, _, name = METHOD[1:].partition("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    asyncio.run(_call(*arguments) if role == "call" else _serve(*arguments))
