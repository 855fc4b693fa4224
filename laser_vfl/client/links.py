"""Streams to the other clients. Everything is pushed as soon as it is known; nothing answers."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc.aio

from laser_vfl.client.inbox import Inbox, Kind
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.errors import ContractError, LaserError, TrainingStopped
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.frames import open_exchange
from laser_vfl.wire.identity import identify
from laser_vfl.wire.server import Options, connected, open_channel
from laser_vfl.wire.status import error_from

log = logging.getLogger(__name__)

MAX_UNSENT_FRAMES = 4

DIAL_TIMEOUT_S = 20.0

Read = Callable[[], Awaitable[Any]]
Write = Callable[[bytes], Awaitable[None]]


class Link:
    """The stream to one peer: one reader, and an outbox with one writer."""

    def __init__(
        self, peer: Peer, view: MemberView, inbox: Inbox, fail: Callable[[LaserError], None]
    ) -> None:
        self.peer = peer
        self._fail = fail
        self._pumping = False
        self._run = view.run
        self._generation = view.generation
        self._inbox = inbox
        self._room = asyncio.Event()
        self._outbox: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def send(self, frame: bytes) -> None:
        """Queue a serialised frame for the writer."""
        self._outbox.append(frame)
        self._filled.set()

    def close(self) -> None:
        """End the stream."""
        self._closed.set()

    async def drain(self) -> None:
        """Wait while too much is unsent."""
        while len(self._outbox) >= MAX_UNSENT_FRAMES and self._inbox.failure is None:
            self._drained.clear()
            await self._drained.wait()

    def stop_draining(self) -> None:
        """Let go whoever waits for the outbox; nothing more will be sent."""
        self._drained.set()

    async def pump(self, read: Read, write: Write) -> None:
        """Move frames in both directions until the stream ends or fails; either ends the run."""
        if self._pumping:
            raise ContractError(f"{self.peer.name} has a stream already")
        self._pumping = True
        reader = asyncio.create_task(self._read_all(read))
        writer = asyncio.create_task(self._write_all(write))
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({reader, writer, closed}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()
            self._fail(lost(self.peer, "it closed the connection"))
        except grpc.aio.AioRpcError as error:
            self._fail(lost(self.peer, error_from(error, doing="the stream broke").message))
        except LaserError as error:
            self._fail(error)
            raise
        except BaseException:
            self._fail(lost(self.peer, "the connection was cut"))
            raise
        finally:
            ended: list[asyncio.Task[Any]] = [reader, writer, closed]
            for pending in ended:
                pending.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    async def _write_all(self, write: Write) -> None:
        while True:
            while self._outbox:
                await write(self._outbox[0])
                self._outbox.popleft()
                self._drained.set()
            self._filled.clear()
            await self._filled.wait()

    async def _read_all(self, read: Read) -> None:
        while (frame := await read()) is not grpc.aio.EOF:
            if frame.sender != self.peer.name or frame.incarnation != self.peer.incarnation:
                raise ContractError(f"{self.peer.name} sent a frame in another's name")
            if (frame.run, frame.generation) != (self._run, self._generation):
                self._inbox.dropped["other generation"] += 1
                continue
            self._inbox.put(self.peer.index, frame)
            while not self._inbox.has_room(self.peer.index, self._resume):
                await self._room.wait()
                self._room.clear()

    def _resume(self) -> None:
        """Called by the training thread when it has made room."""
        self._loop.call_soon_threadsafe(self._room.set)


class Links:
    """All streams of this client in one run. Of each pair, the one first in the roster dials."""

    def __init__(self, view: MemberView, credentials: Credentials, options: Options) -> None:
        self.view = view
        self.inbox = Inbox()
        self._credentials = credentials
        self._options = options
        self._links = {peer.index: Link(peer, view, self.inbox, self.fail) for peer in view.peers}
        self._channels: list[grpc.aio.Channel] = []
        self._tasks = [
            asyncio.create_task(self._dial(peer))
            for peer in view.peers
            if peer.index > view.me.index
        ]

    def fail(self, error: LaserError) -> None:
        """End the run here: let go whoever waits for a frame or to send one."""
        self.inbox.fail(error)
        for link in self._links.values():
            link.stop_draining()

    async def close(self) -> None:
        """Close all streams."""
        if self.inbox.dropped:
            log.warning("frames dropped: %s", dict(self.inbox.dropped))
        self.fail(TrainingStopped("this client is stopping"))
        for link in self._links.values():
            link.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()

    def send(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Queue serialised frames for their peers."""
        for peer, frame in frames:
            self._links[peer].send(frame)

    async def drain(self) -> None:
        """Wait while too much is unsent to anybody."""
        for link in self._links.values():
            await link.drain()

    async def admit(self, hello: pb.Frame, context: Any) -> None:
        """Let an earlier peer in."""
        view = self.view
        identify(hello.sender, context)
        if (hello.run, hello.generation) != (view.run, view.generation):
            raise ContractError("that run is not the one under way here")
        caller = next((peer for peer in view.peers if peer.name == hello.sender), None)
        if caller is None or caller.incarnation != hello.incarnation:
            raise ContractError("only the members of the run exchange frames")
        await self._links[caller.index].pump(context.read, context.write)

    async def _dial(self, peer: Peer) -> None:
        channel = open_channel(peer.address, self._credentials, self._options)
        self._channels.append(channel)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await connected(channel)
            call = open_exchange(channel)
            await call.write(tagged(self.view, pb.FRAME_KIND_HELLO, 0).SerializeToString())
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self.fail(lost(peer, f"it cannot be reached at {peer.address}"))
            return
        with contextlib.suppress(Exception):  # the run has failed by then, and says why
            await self._links[peer.index].pump(call.read, call.write)


class Reception:
    """Where peers' streams arrive, whatever run is under way."""

    def __init__(self) -> None:
        self._links: Links | None = None
        self._opened = asyncio.Event()

    def open(self, links: Links) -> None:
        """Let the members of a run in."""
        self._links = links
        self._opened.set()

    def close(self) -> None:
        """The run is over; who comes now is early for the next one."""
        self._links = None
        self._opened.clear()

    async def serve(self, requests: Any, context: Any) -> None:
        """Take a stream in; its sender may know of the run before we do."""
        hello = await context.read()
        if hello is grpc.aio.EOF or hello.kind != pb.FRAME_KIND_HELLO:
            raise ContractError("a stream begins with a hello")
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self._opened.wait()
        except TimeoutError:
            raise ContractError("no run is under way here") from None
        assert self._links is not None
        await self._links.admit(hello, context)


def tagged(view: MemberView, kind: Kind, step: int) -> pb.Frame:
    """Return a frame with everything but a tensor."""
    return pb.Frame(
        run=view.run,
        generation=view.generation,
        step=step,
        kind=kind,
        sender=view.me.name,
        incarnation=view.me.incarnation,
    )


def lost(peer: Peer, why: str) -> TrainingStopped:
    """Return the error of a run that a peer has dropped out of."""
    return TrainingStopped(f"lost {peer.name}: {why}", hint="see its log, then start again")
