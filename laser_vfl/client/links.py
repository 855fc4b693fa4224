"""Streams to the other clients: frames are pushed as soon as they are known, and awaited by name."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
import torch

from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.errors import ContractError, LaserError, TrainingStopped
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerServicer, PeerStub
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.server import Options, open_channel
from laser_vfl.wire.status import error_from
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor

log = logging.getLogger(__name__)

MAX_HELD_FRAMES = 2
"""A representation and a gradient: no peer can be further ahead than that."""

MAX_UNSENT_FRAMES = 4

Kind = pb.FrameKind.ValueType
Key = tuple[Kind, int]
Read = Callable[[], Awaitable[Any]]
Write = Callable[[pb.Frame], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Limits:
    """What a frame of this run may be."""

    wire_dtype: torch.dtype
    step_timeout_s: float


class Link:
    """The stream to one peer: an outbox with one writer, an inbox of at most two frames."""

    def __init__(self, peer: Peer, dropped: Counter[str]) -> None:
        self.peer = peer
        self._dropped = dropped
        self._inbox: dict[Key, pb.Frame] = {}
        self._consumed: dict[Kind, int] = {}
        self._awaited: dict[Key, asyncio.Future[pb.Frame]] = {}
        self._room = asyncio.Event()
        self._outbox: deque[pb.Frame] = deque()
        self._outbox_filled = asyncio.Event()
        self._outbox_drained = asyncio.Event()
        self._broken: LaserError | None = None

    def send(self, frame: pb.Frame) -> None:
        """Queue a frame. The writer starts on it at the next turn of the event loop."""
        self._outbox.append(frame)
        self._outbox_filled.set()

    async def drain(self) -> None:
        """Wait while too much is unsent."""
        while len(self._outbox) >= MAX_UNSENT_FRAMES and self._broken is None:
            self._outbox_drained.clear()
            await self._outbox_drained.wait()

    async def receive(self, kind: Kind, step: int) -> pb.Frame:
        """Wait for a frame."""
        key = (kind, step)
        frame = self._inbox.pop(key, None)
        if frame is None:
            if self._broken is not None:
                raise self._broken
            waiter = asyncio.get_running_loop().create_future()
            self._awaited[key] = waiter
            try:
                frame = await waiter
            finally:
                self._awaited.pop(key, None)
        self._consumed[kind] = step
        self._room.set()
        return frame

    def fail(self, error: LaserError) -> None:
        """End the link: whoever waits for it hears why."""
        if self._broken is None:
            self._broken = error
        for waiter in self._awaited.values():
            if not waiter.done():
                waiter.set_exception(self._broken)
        self._outbox_drained.set()

    async def pump(self, read: Read, write: Write) -> None:
        """Move frames in both directions until the stream ends or fails."""
        writer = asyncio.create_task(self._write_all(write))
        reader = asyncio.create_task(self._read_all(read))
        try:
            done, _ = await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except grpc.aio.AioRpcError as error:
            self.fail(_lost(self.peer, error_from(error, doing="the stream broke").message))
        except LaserError as error:
            self.fail(error)
            raise
        finally:
            for task in (writer, reader):
                task.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)
            self.fail(_lost(self.peer, "it closed the connection"))

    async def _write_all(self, write: Write) -> None:
        while True:
            while self._outbox:
                await write(self._outbox[0])
                self._outbox.popleft()
                self._outbox_drained.set()
            self._outbox_filled.clear()
            await self._outbox_filled.wait()

    async def _read_all(self, read: Read) -> None:
        while (frame := await read()) is not grpc.aio.EOF:
            self._take(frame)
            while len(self._inbox) >= MAX_HELD_FRAMES:
                self._room.clear()
                await self._room.wait()

    def _take(self, frame: pb.Frame) -> None:
        if frame.sender != self.peer.name or frame.incarnation != self.peer.incarnation:
            raise ContractError(f"{self.peer.name} sent a frame in another's name")
        key = (frame.kind, frame.step)
        if frame.step <= self._consumed.get(frame.kind, -1) or key in self._inbox:
            self._dropped["repeated"] += 1
            return
        waiter = self._awaited.get(key)
        if waiter is not None and not waiter.done():
            waiter.set_result(frame)
        else:
            self._inbox[key] = frame


class Links(PeerServicer):
    """All streams of this client in one run. Of each pair, the one first in the roster dials."""

    def __init__(self, credentials: Credentials, options: Options) -> None:
        self._credentials = credentials
        self._options = options
        self._opened = asyncio.Event()
        self._view: MemberView | None = None
        self._limits = Limits(torch.float32, 0.0)
        self._links: dict[int, Link] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[grpc.aio.Channel] = []
        self.dropped: Counter[str] = Counter()

    def open(self, view: MemberView, limits: Limits) -> None:
        """Dial the peers that come later in the roster and let the earlier ones in."""
        self._view, self._limits = view, limits
        self._links = {peer.index: Link(peer, self.dropped) for peer in view.peers}
        for peer in view.peers:
            if peer.index > view.me.index:
                self._tasks.append(asyncio.create_task(self._dial(peer)))
        self._opened.set()

    async def close(self) -> None:
        """Close all streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            link.fail(_lost(link.peer, "this client closed the connection"))
        for channel in self._channels:
            await channel.close()

    def send(self, peer: int, kind: Kind, step: int, tensor: torch.Tensor) -> None:
        """Push a tensor to a peer."""
        frame = self._frame(kind, step)
        frame.tensor.CopyFrom(encode_tensor(tensor, self._limits.wire_dtype))
        self._links[peer].send(frame)

    async def flush(self) -> None:
        """Give the writers a turn, so that what was sent is under way before we compute on."""
        await asyncio.sleep(0)

    async def drain(self) -> None:
        """Wait while too much is unsent to anybody."""
        for link in self._links.values():
            await link.drain()

    async def receive(
        self, peer: int, kind: Kind, step: int, shape: tuple[int, ...]
    ) -> torch.Tensor:
        """Wait for a tensor of a peer; anything but the expected shape is refused."""
        link = self._links[peer]
        try:
            async with asyncio.timeout(self._limits.step_timeout_s):
                frame = await link.receive(kind, step)
        except TimeoutError:
            name = pb.FrameKind.Name(kind).removeprefix("FRAME_KIND_").lower()
            raise _lost(
                link.peer,
                f"its {name} of step {step} did not come within {self._limits.step_timeout_s:g} s",
            ) from None
        try:
            return decode_tensor(frame.tensor, TensorSpec(shape, self._limits.wire_dtype))
        except ContractError as error:
            refusal = ContractError(f"{link.peer.name} at step {step}: {error.message}")
            link.fail(refusal)
            raise refusal from None

    async def Exchange(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        """Let an earlier peer in; it may know the view before we do."""
        hello = await context.read()
        if hello is grpc.aio.EOF or hello.kind != pb.FRAME_KIND_HELLO:
            raise ContractError("a stream begins with a hello")
        await self._opened.wait()
        view = self._view
        assert view is not None
        if hello.run != view.run or hello.generation != view.generation:
            raise ContractError("that run is not the one under way here")
        caller = next((p for p in view.peers if p.name == hello.sender), None)
        if caller is None or caller.incarnation != hello.incarnation:
            raise ContractError("only the members of the run exchange frames")
        await self._links[caller.index].pump(context.read, context.write)

    async def _dial(self, peer: Peer) -> None:
        channel = open_channel(peer.address, self._credentials, self._options)
        self._channels.append(channel)
        call = PeerStub(channel).Exchange(wait_for_ready=True)
        link = self._links[peer.index]
        try:
            await call.write(self._frame(pb.FRAME_KIND_HELLO, 0))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            link.fail(_lost(peer, "it cannot be reached"))
            return
        with contextlib.suppress(LaserError):
            await link.pump(call.read, call.write)

    def _frame(self, kind: Kind, step: int) -> pb.Frame:
        view = self._view
        assert view is not None
        return pb.Frame(
            run=view.run,
            generation=view.generation,
            step=step,
            kind=kind,
            sender=view.me.name,
            incarnation=view.me.incarnation,
        )


def _lost(peer: Peer, why: str) -> TrainingStopped:
    return TrainingStopped(f"lost {peer.name}: {why}", hint="see its log, then start again")
