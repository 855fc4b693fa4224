"""Streams to the other clients. Frames are sent as soon as they exist; there are no replies.

A stream that breaks is opened again, and what may not have arrived is sent again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc.aio

from laser_vfl.client.peers.frame_buffer import FrameBuffer, Interrupted, Key, OutgoingFrame
from laser_vfl.client.peers.pair_keys import PairKeys
from laser_vfl.client.peers.peer_stream import (
    RETAINED_BEYOND,
    Accuse,
    Changed,
    PeerStream,
    Read,
    StreamLimits,
    Write,
)
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.core.errors import ContractError, LaserError
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.access import identify
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import client_of
from laser_vfl.transport.deadlines import in_time
from laser_vfl.transport.frames import open_exchange
from laser_vfl.transport.grpc_status import error_from, heed_cancellation
from laser_vfl.transport.message_limits import Options
from laser_vfl.transport.reloading_channel import ReloadingChannel
from laser_vfl.v1 import coordinator_pb2
from laser_vfl.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

DIAL_TIMEOUT_S = 20.0
EARLY_S = 2.0
"""How long a stream waits here for a run or a view that its caller has heard of first."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 1.0


class PeerMesh:
    """All streams of one process in one run. Of each pair, the one first in the roster dials."""

    def __init__(
        self,
        run: str,
        me: Peer,
        roster: Sequence[str],
        credentials: Credentials,
        options: Options,
        changed: Changed = lambda: None,
        accuse: Accuse = lambda peer, reason: None,
        *,
        pair_keys: bool = False,
        traffic: PeerTraffic | None = None,
        pipeline: int = 0,
        most_bytes: int = 0,
    ) -> None:
        """`pipeline` is how many steps may be under way besides the oldest one.

        Frames travel in one message if they take no more than `most_bytes` together.
        """
        self.run = run
        self.me = me
        self.roster = roster
        self.buffer = FrameBuffer(pipeline)
        self.offences: Counter[str] = Counter()
        """How often peers broke the contract, by reason."""
        self.news = asyncio.Event()
        self._keys = PairKeys(run, me) if pair_keys else None
        self._credentials = credentials
        self._options = options
        self._changed = changed
        self._accuse = accuse
        self._traffic = traffic or PeerTraffic()
        self._limits = StreamLimits(pipeline + RETAINED_BEYOND, most_bytes)
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, PeerStream] = {}
        self._retired: dict[int, PeerStream] = {}
        self._by_index: dict[int, PeerStream] = {}
        self._dials: dict[int, asyncio.Task[None]] = {}

    def connect_to(self, peers: Iterable[Peer]) -> None:
        """Keep streams to these peers, and to nobody else."""
        wanted = {peer.incarnation: peer for peer in peers}
        for incarnation, stream in list(self._streams.items()):
            if (peer := wanted.get(incarnation)) is None:
                self._retired[incarnation] = self._streams.pop(incarnation)
                stream.retire()
            elif peer.name != stream.peer.name:
                raise ContractError("the coordinator gives a process the number of another")
            else:
                stream.peer = peer  # its address may be dialled now that was not before
        self._forget_closed()
        for incarnation, peer in wanted.items():
            if incarnation not in self._streams:
                if before := self._retired.pop(incarnation, None):
                    before.closed.set()  # its caller opens a stream anew
                stream = PeerStream(
                    peer,
                    self.run,
                    self.buffer,
                    self._changed,
                    self._offended,
                    self._traffic,
                    self._limits,
                )
                self._streams[incarnation] = stream
                if peer.index > self.me.index:
                    self._dials[incarnation] = asyncio.create_task(self._keep_open(stream))
        self.news.set()
        self.news = asyncio.Event()

    def _forget_closed(self) -> None:
        """Let go of processes that are long gone."""
        for incarnation in [i for i, stream in self._retired.items() if stream.closed.is_set()]:
            del self._retired[incarnation]
        for incarnation in [i for i, dial in self._dials.items() if dial.done()]:
            del self._dials[incarnation]

    def begin(self, view: MemberView) -> None:
        """Exchange frames of this view's generation from now on."""
        self._by_index = {peer.index: self._streams[peer.incarnation] for peer in view.peers}
        for stream in self._streams.values():
            stream.begin()
        self.buffer.begin(view.generation)

    def send(self, frames: Sequence[OutgoingFrame]) -> None:
        """Queue serialised frames for their peers. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._queue, frames)

    def refuse(self, peer: int, reason: str) -> None:
        """Close the stream to a peer that broke the contract until the generation ends.

        May be called from any thread.
        """
        self._loop.call_soon_threadsafe(self._refuse, peer, reason)

    def holds(self, keys: Iterable[Key]) -> bool:
        """Tell whether all of these frames have come."""
        return self.buffer.holds(keys)

    def wait(self, sets: Sequence[Collection[Key]]) -> None:
        """Wait in the training thread until all frames of one of these sets have come."""
        self.buffer.wait(sets)

    def take(self, wanted: Iterable[Key]) -> dict[Key, pb.Frame]:
        """Wait in the training thread until all of these frames have come; return them."""
        return self.buffer.take(wanted)

    def check(self) -> None:
        """Raise if nothing more will come."""
        if self.buffer.failure is not None:
            raise self.buffer.failure

    def interrupt(self) -> None:
        """End the step that is under way: the training thread gets no more frames."""
        self.buffer.fail(Interrupted())

    def key_of(self, peer: int) -> bytes:
        """Return the key shared with a peer, from which something has come already."""
        assert self._keys is not None
        return self._keys.key_of(self._by_index[peer].peer)

    @property
    def dropped(self) -> Counter[str]:
        """How many frames were of no use, by reason."""
        return self.buffer.dropped

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The peers whose frames the training thread waits for at this moment."""
        return self.buffer.waiting_for

    def are_up(self) -> dict[str, bool]:
        """Tell of each member whether there is a stream to it now."""
        return {stream.peer.name: stream.up for stream in self._streams.values()}

    def reports(self) -> list[coordinator_pb2.LinkReport]:
        """Say how each stream is."""
        return [stream.report() for stream in self._streams.values()]

    async def close(self) -> None:
        """Close all streams."""
        for stream in (*self._streams.values(), *self._retired.values()):
            stream.closed.set()
        dials = list(self._dials.values())
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)

    def find(self, hello: pb.Frame) -> PeerStream | None:
        """Return the stream that a caller's stream belongs to, if it is known here already."""
        if hello.incarnation in self._retired:
            self.buffer.drop("earlier life")
            raise ContractError("the others go on without this process; it has to register anew")
        if hello.receiver != self.me.incarnation:
            raise ContractError("this is another process than the one that was called")
        if hello.sender not in self.roster:
            raise ContractError("only the members of the run exchange frames")
        stream = self._streams.get(hello.incarnation)
        if stream is None or stream.peer.name != hello.sender:
            return None
        stream.check()
        return stream

    def hello(self, receiver: Peer) -> bytes:
        """Return the frame that a stream begins with, in both directions."""
        frame = pb.Frame(
            run=self.run,
            kind=pb.FRAME_KIND_HELLO,
            sender=self.me.name,
            incarnation=self.me.incarnation,
            receiver=receiver.incarnation,
            public_key=self._keys.public if self._keys else b"",
        )
        return frame.SerializeToString()

    async def pump(self, stream: PeerStream, hello: pb.Frame, read: Read, write: Write) -> None:
        """Move frames over a stream whose other end has said hello, until it ends."""
        if self._keys is not None:
            self._keys.agree(stream.peer, hello.public_key)
        await stream.pump(read, write)

    def _queue(self, frames: Sequence[OutgoingFrame]) -> None:
        for peer, kind, frame in frames:
            self._by_index[peer].send(kind, frame)

    def _refuse(self, peer: int, reason: str) -> None:
        self._by_index[peer].refuse(reason)

    def _offended(self, peer: str, reason: str) -> None:
        self.offences[reason] += 1
        self._accuse(peer, reason)

    async def _keep_open(self, stream: PeerStream) -> None:
        """Dial a peer again and again, for as long as it is wanted."""
        retry_s, complaint = FIRST_RETRY_S, ""
        while not stream.is_retired:
            num_opened, error = stream.num_opened, ""
            try:
                await self._dial(stream)
            except grpc.aio.AioRpcError as failure:
                error = error_from(failure, doing="dialling").message
            except TimeoutError:
                error = "it does not answer"
            except LaserError as failure:
                error = str(failure)
            except asyncio.InvalidStateError:
                error = "the stream was cut"
            heed_cancellation()
            if stream.num_opened > num_opened:
                retry_s, complaint = FIRST_RETRY_S, ""
            elif error and error != complaint:
                log.info(
                    "%s cannot be reached at %s: %s", stream.peer.name, stream.peer.address, error
                )
                complaint = error
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _dial(self, stream: PeerStream) -> None:
        to = client_of(self._credentials.federation, stream.peer.name)
        channel = ReloadingChannel(stream.peer.address, self._credentials, to, self._options)
        try:
            call = open_exchange(channel.channel)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await call.write(self.hello(stream.peer))
                answer = await call.read()
            if answer is None or answer is grpc.aio.EOF or answer.kind != pb.FRAME_KIND_HELLO:
                raise ContractError(f"{stream.peer.name} did not answer with a hello")
            if (answer.sender, answer.incarnation) != (stream.peer.name, stream.peer.incarnation):
                raise ContractError(f"somebody else answers at {stream.peer.address}")
            with channel.while_fresh(call):
                await self.pump(stream, answer, call.read, call.write)
        finally:
            with suppress(Exception):
                await channel.close()


class PeerStreamServicer:
    """Accepts the streams that peers open, in whatever run is under way."""

    def __init__(self) -> None:
        self._mesh: PeerMesh | None = None
        self._opened = asyncio.Event()

    def open(self, mesh: PeerMesh) -> None:
        """Let the members of a run in."""
        self._mesh = mesh
        self._opened.set()
        self._opened = asyncio.Event()

    def close(self) -> None:
        """The run is over: a peer that dials now is early for the next one."""
        self._mesh = None

    async def serve(self, requests: Any, context: Any) -> None:
        """Take a stream in; its sender may know of the run, or of the view, before we do."""
        hello = await in_time(context.read())
        if hello is grpc.aio.EOF or hello.kind != pb.FRAME_KIND_HELLO:
            raise ContractError("a stream begins with a hello")
        identify(hello.sender)
        try:
            async with asyncio.timeout(EARLY_S):
                mesh, stream = await self._expected(hello)
        except TimeoutError:
            raise ContractError("no such process is in the run under way here") from None
        await context.write(mesh.hello(stream.peer))
        await mesh.pump(stream, hello, context.read, context.write)

    async def _expected(self, hello: pb.Frame) -> tuple[PeerMesh, PeerStream]:
        while True:
            opened, mesh = self._opened, self._mesh
            if mesh is None:
                await opened.wait()
                continue
            if mesh.run == hello.run and (stream := mesh.find(hello)) is not None:
                return mesh, stream
            waits = [asyncio.ensure_future(e.wait()) for e in (opened, mesh.news)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
