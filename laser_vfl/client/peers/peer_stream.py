"""The stream to one process of a peer: frames in both directions, and what to send again."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from laser_vfl.client.peers.frame_buffer import FrameBuffer, Kind
from laser_vfl.client.session.member_view import Peer
from laser_vfl.core.errors import ContractError
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.transport.frames import MAX_FRAMES, apart, bytes_read, together
from laser_vfl.transport.refused_messages import RefusedMessage, read_message
from laser_vfl.v1 import coordinator_pb2
from laser_vfl.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

RETIRED_S = 30.0
"""How long the stream to a process that is no member any more stays open, to count what comes."""

RETAINED_BEYOND = 2
"""Of each kind, so many frames beyond the pipeline are kept to be sent again: a peer that gets
another one has answered the first."""

MAX_USELESS = 1_000
"""More useless frames in a row are no accident: the stream is refused."""

KINDS = frozenset(
    (
        pb.FRAME_KIND_REPRESENTATION,
        pb.FRAME_KIND_GRADIENT,
        pb.FRAME_KIND_EVALUATION,
        pb.FRAME_KIND_EVALUATED,
    )
)

Read = Callable[[], Awaitable[Any]]
Write = Callable[[bytes], Awaitable[None]]
Changed = Callable[[], None]
Accuse = Callable[[str, str], None]
"""Is called with the peer that broke the contract, and the reason."""


@dataclass(frozen=True)
class StreamLimits:
    """How many frames of a kind are kept to be sent again, and how large a message may be."""

    max_retained: int = RETAINED_BEYOND
    most_bytes: int = 0


class PeerStream:
    """The stream to one process of a peer, and what it may have to be sent again."""

    def __init__(
        self,
        peer: Peer,
        run: str,
        buffer: FrameBuffer,
        changed: Changed,
        accuse: Accuse,
        traffic: PeerTraffic,
        limits: StreamLimits | None = None,
    ) -> None:
        self.peer = peer
        self.up = False
        self.closed = asyncio.Event()
        self.num_opened = 0
        self.is_retired = False
        self.is_refused = False
        self.num_offences = 0
        self._num_useless = 0
        """Frames that were dropped since the last one that was not."""
        self._since = time.monotonic()
        self._changed = changed
        self._accuse = accuse
        self._traffic = traffic
        self._limits = limits or StreamLimits()
        self._run = run
        self._buffer = buffer
        self._room = asyncio.Event()
        self._retained: list[tuple[Kind, bytes]] = []
        self._queue: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._refused: tuple[asyncio.Task[None] | None, str] = (None, "")
        """The pump that was stopped because of what the peer sent, and the reason."""
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """A generation ends: nothing of it is sent any more."""
        self.is_refused = False
        self._retained.clear()
        self._queue.clear()

    def send(self, kind: Kind, frame: bytes) -> None:
        """Queue a serialised frame for the writer."""
        same = [item for item in self._retained if item[0] == kind]
        if len(same) >= self._limits.max_retained:
            self._retained.remove(same[0])
        self._retained.append((kind, frame))
        self._queue.append(frame)
        self._filled.set()

    def refuse(self, reason: str) -> None:
        """The peer broke the contract: the stream stays closed until the generation ends."""
        self.is_refused = True
        self._count_offence(reason)
        if self._pump is not None:
            self._refused = (self._pump, reason)
            self._pump.cancel()

    def check(self) -> None:
        """Raise if there may be no stream to this peer for now."""
        if self.is_refused:
            raise ContractError(f"{self.peer.name} broke the contract in this generation")

    def retire(self) -> None:
        """The process at the other end is not wanted any more; what it still sends is dropped."""
        self.is_retired = True
        self.begin()
        self._room.set()
        self._loop.call_later(RETIRED_S, self.closed.set)

    def report(self) -> coordinator_pb2.LinkReport:
        """Return the state of the stream, for the coordinator."""
        return coordinator_pb2.LinkReport(
            incarnation=self.peer.incarnation,
            up=self.up,
            for_s=time.monotonic() - self._since,
            offences=self.num_offences,
        )

    async def pump(self, read: Read, write: Write) -> None:
        """Move frames in both directions until the stream ends; a newer stream replaces an older.

        What may have been lost with the stream before is sent again; the peer knows what it has.
        """
        self.check()
        if self._pump is not None:
            self._pump.cancel()
        mine = self._pump = asyncio.create_task(self._move(read, write))
        try:
            await asyncio.shield(mine)
        except asyncio.CancelledError:
            if not mine.cancelled():
                mine.cancel()
                raise
            refused, reason = self._refused
            if refused is mine:  # the status of the call tells the peer
                raise ContractError(f"a tensor of {self.peer.name} is refused: {reason}") from None
        finally:
            if self._pump is mine:
                self._pump = None
                self._set(up=False)

    async def _move(self, read: Read, write: Write) -> None:
        self._queue = deque(frame for _, frame in self._retained)
        self.num_opened += 1
        self._set(up=True)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._read_all(read)),
            asyncio.create_task(self._write_all(write)),
            asyncio.create_task(self.closed.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write_all(self, write: Write) -> None:
        while True:
            while self._queue:
                message = self._next_message()
                await write(message)
                self._traffic.sent(self.peer.name, "training", len(message))
            self._filled.clear()
            await self._filled.wait()

    def _next_message(self) -> bytes:
        """Return the next frame in the queue, with those after it that fit into its message."""
        parts = [self._queue.popleft()]
        num_bytes = len(parts[0])
        while self._queue and len(parts) < MAX_FRAMES:
            num_bytes += len(self._queue[0])
            if num_bytes > self._limits.most_bytes:
                break
            parts.append(self._queue.popleft())
        return together(parts)

    async def _read_all(self, read: Read) -> None:
        while True:
            await self._wait_for_room()
            try:
                frame = await _readable(read)
            except RefusedMessage:
                self.is_refused = True
                raise self._offence("oversize frame", "a frame above the limit") from None
            if frame is grpc.aio.EOF:
                return
            self._traffic.received(self.peer.name, "training", bytes_read())
            if frame is None:
                raise self._offence("no frame", "something that is no frame")
            for part in apart(frame):
                await self._wait_for_room()
                self._take_in(part)

    async def _wait_for_room(self) -> None:
        while not (self.is_retired or self._buffer.has_room(self.peer.index, self._resume)):
            await self._room.wait()
            self._room.clear()

    def _take_in(self, frame: pb.Frame) -> None:
        if frame.sender != self.peer.name or frame.incarnation != self.peer.incarnation:
            raise self._offence("false name", "a frame in another's name")
        self._num_useless = 0 if self._put(frame) else self._num_useless + 1
        if self._num_useless > MAX_USELESS:
            self.is_refused = True
            raise self._offence("useless frames", f"{MAX_USELESS} useless frames in a row")

    def _put(self, frame: pb.Frame) -> bool:
        """Hand a frame to the training thread; tell whether it is of use."""
        if self.is_retired or frame.run != self._run:
            self._buffer.drop("earlier life" if self.is_retired else "other run")
            return False
        if frame.kind not in KINDS:
            raise self._offence("no frame", "a frame of no kind")
        return self._buffer.put(self.peer.index, frame)

    def _offence(self, reason: str, what: str) -> ContractError:
        """Take note of what the peer did; return what ends the stream."""
        self._count_offence(reason)
        log.error("%s broke the contract: it sent %s", self.peer.name, what)
        return ContractError(f"{self.peer.name} sent {what}")

    def _count_offence(self, reason: str) -> None:
        self.num_offences += 1
        self._accuse(self.peer.name, reason)

    def _resume(self) -> None:
        """Called by the training thread when it has made room."""
        self._loop.call_soon_threadsafe(self._room.set)

    def _set(self, *, up: bool) -> None:
        if up == self.up:
            return
        self.up, self._since = up, time.monotonic()
        if not (self.closed.is_set() or self.is_retired):
            log.log(
                logging.DEBUG if up else logging.INFO,
                "the stream to %s is %s",
                self.peer.name,
                "up" if up else "down",
            )
        self._changed()


async def _readable(read: Read) -> Any:
    """Read a frame; None if a message is no frame."""
    try:
        return await read_message(read)
    except DecodeError:
        return None
