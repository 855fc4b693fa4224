"""How long a caller may take for what it has to say."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from laser_vfl.core.errors import ContractError

FIRST_S = 10.0
"""For the first message of a call, which says who calls and what about."""

NEXT_S = 60.0
"""For the next message of a list, or the one message of a call."""

SLOWEST_BYTES_PER_S = 64 * 1024
"""Nobody waits for a list that comes more slowly than this."""

Message = TypeVar("Message")


async def in_time(message: Awaitable[Message], seconds: float = FIRST_S) -> Message:
    """Wait for a message, and not for ever."""
    try:
        async with asyncio.timeout(seconds):
            return await message
    except TimeoutError:
        raise ContractError(f"nothing came for {seconds:g} s") from None


async def written_in_time(answer: Awaitable[None], seconds: float = NEXT_S) -> None:
    """Write an answer. An answer that the caller does not read is dropped after the deadline."""
    try:
        async with asyncio.timeout(seconds):
            await answer
    except TimeoutError:
        raise ContractError(f"the answer was not read for {seconds:g} s") from None
