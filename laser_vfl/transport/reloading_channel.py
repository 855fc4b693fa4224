"""A channel to one party that is opened anew when our certificate changes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import Identity
from laser_vfl.transport.grpc_status import heed_cancellation
from laser_vfl.transport.message_limits import Options
from laser_vfl.transport.server import open_channel

OLD_CALLS_S = 6 * 3600.0
"""How long calls that began under an old certificate may still take; an alignment may be long."""


class ReloadingChannel:
    """The way to one daemon. Calls begin on `channel`, whichever that is at the moment."""

    def __init__(
        self, address: str, credentials: Credentials, to: Identity, options: Options
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._to = to
        self._options = options
        self._closing: set[asyncio.Task[None]] = set()
        self._open()

    @property
    def is_stale(self) -> bool:
        """Whether our certificate has changed since the channel was opened."""
        return self._changed.is_set()

    @property
    def channel(self) -> grpc.aio.Channel:
        """Return a channel that shows our present certificate."""
        if self.is_stale:
            self.reopen(self.address, self._options, grace_s=OLD_CALLS_S)
        return self._channel

    def reopen(self, address: str, options: Options, grace_s: float | None = None) -> None:
        """Have another channel; calls under way have a time of grace, or end at once."""
        closing = asyncio.ensure_future(self._channel.close(grace_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self.address, self._options = address, options
        self._open()

    @contextmanager
    def while_fresh(self, call: Any) -> Iterator[None]:
        """End a long call when our certificate changes, so that it begins anew with the new one."""
        renewal = asyncio.create_task(_cancel_when(self._changed, call))
        try:
            yield
        except asyncio.CancelledError:
            heed_cancellation()
            if not self.is_stale:
                raise
        finally:
            renewal.cancel()

    async def close(self) -> None:
        """End all calls."""
        for closing in self._closing:
            closing.cancel()
        await self._channel.close()

    def _open(self) -> None:
        self._changed = self._credentials.changed
        self._channel = open_channel(self.address, self._credentials, self._to, self._options)


async def _cancel_when(event: asyncio.Event, call: Any) -> None:
    await event.wait()
    call.cancel()
