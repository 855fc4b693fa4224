"""Who reads is told of what gRPC refused, and of nothing else."""

import asyncio
import logging

import grpc
import pytest
from grpc.aio import EOF, AioRpcError, Metadata

from laser_vfl.transport.refused_messages import RefusedMessage, read_message

GRPC = logging.getLogger("grpc._cython.cygrpc")


def reader(outcome, *, fails):
    """What gRPC does when a read ends: it says whether it failed, and returns or raises."""

    async def read():
        await asyncio.sleep(0)
        if fails:
            GRPC.debug("Failed to receive any message from Core: %s", "batch")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return read


def status(code, details):
    return AioRpcError(code, Metadata(), Metadata(), details)


TOO_LARGE = status(
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    "Stream removed (CLIENT: Received message larger than max (8388608 vs. 1048576))",
)
UNPACKED = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "Decompressed message larger than max")
SENT = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max (8 vs. 1)")
LATE = status(grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)")


@pytest.mark.parametrize("outcome", [EOF, TOO_LARGE, UNPACKED])
def test_what_grpc_refused_is_told(outcome):
    with pytest.raises(RefusedMessage):
        asyncio.run(read_message(reader(outcome, fails=True)))


@pytest.mark.parametrize("outcome", [SENT, LATE])
def test_a_read_that_fails_for_a_reason_of_our_own_is_nobodys_fault(outcome):
    with pytest.raises(AioRpcError):
        asyncio.run(read_message(reader(outcome, fails=True)))


def test_a_status_that_only_looks_like_it_is_a_status():
    with pytest.raises(AioRpcError):
        asyncio.run(read_message(reader(TOO_LARGE, fails=False)))


@pytest.mark.parametrize("outcome", [EOF, "a message"])
def test_what_comes_is_what_came(outcome):
    assert asyncio.run(read_message(reader(outcome, fails=False))) is outcome


def test_a_failure_is_of_the_stream_that_failed():
    async def play():
        others = [read_message(reader(EOF, fails=False)) for _ in range(3)]
        failing = read_message(reader(EOF, fails=True))
        found = await asyncio.gather(*others, failing, return_exceptions=True)
        assert found[:3] == [EOF] * 3
        assert isinstance(found[3], RefusedMessage)

    asyncio.run(play())


def test_a_failure_is_not_remembered():
    async def play():
        with pytest.raises(RefusedMessage):
            await read_message(reader(EOF, fails=True))
        assert await read_message(reader(EOF, fails=False)) is EOF

    asyncio.run(play())


def test_the_log_of_grpc_has_what_it_had_before(caplog):
    GRPC.debug("nobody asked")
    GRPC.warning("something is wrong")
    assert caplog.messages == ["something is wrong"]
    caplog.set_level(logging.DEBUG)
    GRPC.debug("somebody asked")
    assert caplog.messages == ["something is wrong", "somebody asked"]
