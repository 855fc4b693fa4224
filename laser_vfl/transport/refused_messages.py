"""Messages that gRPC refuses by itself: those above the limit, and those it cannot unpack.

A server hears of one as of the end of the stream, and a caller by a status that the other side
could have sent. What tells them apart is that gRPC failed to read, rather than that there was
nothing to read, and it says so to its log alone. At a server no other end of a stream fails so:
who hangs up, is killed or is cut off, even in the middle of a message, leaves nothing to read.
"""

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from laser_vfl.transport.grpc_texts import LOGGER, is_too_large, says_read_failed

_has_failed: ContextVar[bool] = ContextVar("has_failed", default=False)
"""Whether gRPC failed to read in this task, which is the one that reads."""


class RefusedMessage(Exception):
    """The other side sent a message that gRPC did not take."""


async def read_message(read: Callable[[], Awaitable[Any]]) -> Any:
    """Read a message of a stream, at either end of it."""
    _has_failed.set(False)
    try:
        message = await read()
    except grpc.aio.AioRpcError as error:
        # A deadline and a message of our own that is too large fail what a caller reads, too.
        if _has_failed.get() and _is_too_large(error):
            raise RefusedMessage from None
        raise
    if message is grpc.aio.EOF and _has_failed.get():
        raise RefusedMessage
    return message


def _is_too_large(error: grpc.aio.AioRpcError) -> bool:
    is_exhausted = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return is_exhausted and is_too_large(error.details() or "")


def _listen(record: logging.LogRecord) -> bool:
    """Hear what gRPC says; show no more of it than would be shown otherwise."""
    if says_read_failed(record):
        _has_failed.set(True)
    return LOGGER.parent is None or record.levelno >= LOGGER.parent.getEffectiveLevel()


LOGGER.setLevel(logging.DEBUG)
LOGGER.addFilter(_listen)
