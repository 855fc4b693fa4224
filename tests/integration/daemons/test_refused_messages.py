"""What gRPC refuses to read is told from every other end of a stream, at both ends of it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from stream_end import LIMIT, METHOD, SMALL

from laser_vfl.transport.refused_messages import RefusedMessage, read_message

PROGRAM = Path(__file__).parent / "stream_end.py"
OPTIONS = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
PATIENCE_S = 20.0

REFUSED = ("oversize", "gzip bomb", "oversize and gone")
CALLERS = (
    "killed",
    "killed while it writes",
    "cancelled",
    "cancelled while it writes",
    "half-closed",
)
SERVERS = ("killed", "killed while it writes", "aborted", "pretended", "ended")


async def how_it_ends(read: Any) -> str:
    """Read as a link does, in a task of its own, to the end."""
    try:
        while await read_message(read) is not grpc.aio.EOF:
            pass
    except RefusedMessage:
        return "refused"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "end"


@asynccontextmanager
async def other_end(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answering(habit: str, *, is_slow: bool) -> str:
    """Return how a stream that was opened to us ends."""
    ended = asyncio.get_running_loop().create_future()

    async def exchange(_: Any, context: Any) -> None:
        async def read() -> Any:
            if is_slow:
                await asyncio.sleep(0.03)
            return await context.read()

        reading = asyncio.create_task(how_it_ends(read))
        try:
            ended.set_result(await asyncio.shield(reading))
        except asyncio.CancelledError:
            reading.cancel()
            found = await asyncio.gather(reading, return_exceptions=True)
            ended.set_result(found[0] if isinstance(found[0], str) else "end")
            raise

    server = grpc.aio.server(options=OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(exchange)
    service, _, name = METHOD[1:].partition("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with other_end("call", habit, str(port)), asyncio.timeout(PATIENCE_S):
            return str(await ended)
    finally:
        await server.stop(0)


async def dialling(habit: str) -> str:
    """Return how a stream that we opened ends."""
    async with other_end("serve", habit) as process, asyncio.timeout(PATIENCE_S):
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            stream: Any = channel.stream_stream(METHOD)()
            with suppress(grpc.aio.AioRpcError):  # it may have ended already
                await stream.write(SMALL)
            return await how_it_ends(stream.read)


@pytest.mark.parametrize("is_slow", [False, True], ids=["eager", "slow"])
@pytest.mark.parametrize("habit", [*REFUSED, *CALLERS])
def test_a_server_tells_what_was_refused(habit: str, is_slow: bool) -> None:
    expected = "refused" if habit in REFUSED else "end"
    assert asyncio.run(answering(habit, is_slow=is_slow)) == expected


@pytest.mark.parametrize("habit", [*REFUSED, *SERVERS])
def test_a_caller_tells_what_was_refused(habit: str) -> None:
    found = asyncio.run(dialling(habit))
    assert (found == "refused") == (habit in REFUSED), found


def test_a_message_of_our_own_that_is_too_large_accuses_nobody() -> None:
    async def play() -> str:
        async with other_end("serve", "oversize") as process, asyncio.timeout(PATIENCE_S):
            assert process.stdout is not None
            port = int(await process.stdout.readline())
            options = [OPTIONS[1], ("grpc.max_receive_message_length", -1)]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
                stream: Any = channel.stream_stream(METHOD)()
                reading = asyncio.create_task(how_it_ends(stream.read))
                with pytest.raises(grpc.aio.AioRpcError):
                    await stream.write(bytes(2 * LIMIT))
                return await reading

    assert asyncio.run(play()) in ("INTERNAL", "RESOURCE_EXHAUSTED")
