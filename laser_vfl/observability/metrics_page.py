"""The page that Prometheus reads: the little of HTTP that it takes, bounded in time and size.

Whoever can reach the address may read it, and nobody can do more than that.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from laser_vfl.config.address import cannot_listen

log = logging.getLogger(__name__)

PATH = "/metrics"
KEY = "metrics_listen"

VISIT_S = 5.0
"""How long a visitor may take for its question and for reading the answer."""

MAX_VISITS = 16
"""So many are served at the same time; the one who has taken longest goes for the next."""

MAX_HEAD_BYTES = 8192

FRESH_S = 1.0
"""A page is made at most once in so long, however often it is asked for."""

_OK = "200 OK"


class MetricsPage:
    """Serves the metrics of one daemon at an address of their own."""

    address: str
    """Where it listens; it has the real port, also when port 0 was asked for."""

    def __init__(self, metrics: Collector, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._visits: dict[asyncio.Task[None], None] = {}
        """The requests under way, oldest first."""
        self._page: bytes | None = None
        self._made_at = -FRESH_S

    async def start(self, host: str, port: int) -> None:
        """Listen; an address that cannot be had is an error for a person."""
        shown = f"[{host}]" if ":" in host else host
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, place = found[0]
            listener = socket.create_server(place[:2], family=family)
        except (OSError, UnicodeError):
            raise cannot_listen(f"{shown}:{port}", KEY) from None
        self._server = await asyncio.start_server(
            self._receive, sock=listener, limit=MAX_HEAD_BYTES
        )
        self.address = f"{shown}:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """Close the port, and send away who is there."""
        if self._server is not None:
            self._server.close()
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        await asyncio.sleep(0)  # for the sockets to be closed

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._visits) >= MAX_VISITS:
            longest = next(iter(self._visits))
            del self._visits[longest]
            longest.cancel()

        def ended(visit: "asyncio.Task[None]") -> None:
            self._visits.pop(visit, None)
            writer.transport.abort()  # here, because one who is sent away may not have begun

        visit = asyncio.create_task(self._serve(reader, writer))
        self._visits[visit] = None
        visit.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, EOFError):  # a slow visitor gets nothing
            async with asyncio.timeout(VISIT_S):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", "too much is asked\n")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return _response("400 Bad Request", "only HTTP/1 is spoken here\n")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "only GET\n", "Allow: GET, HEAD\r\n")
        if target.partition("?")[0] != PATH:
            return _response("404 Not Found", f"the metrics are at {PATH}\n")
        page = self._made()
        if page is None:
            return _response("500 Internal Server Error", "see the log of this daemon\n")
        head_only = method == "HEAD"
        return _response(_OK, page, kind=CONTENT_TYPE_PLAIN_0_0_4, head_only=head_only)

    def _made(self) -> bytes | None:
        now = self._clock()
        if now - self._made_at >= FRESH_S:
            self._made_at = now
            try:
                self._page = generate_latest(self._metrics)
            except Exception:
                self._page = None
                log.exception("the metrics cannot be told; this is a bug")
        return self._page


def _response(
    status: str,
    content: str | bytes,
    more: str = "",
    *,
    kind: str = "text/plain; charset=utf-8",
    head_only: bool = False,
) -> bytes:
    body = content.encode() if isinstance(content, str) else content
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + (b"" if head_only else body)
