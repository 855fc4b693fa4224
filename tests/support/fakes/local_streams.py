"""Streams between clients in one process. A cut loses what is under way; both ends notice."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import grpc
import grpc.aio
from grpc.aio import AioRpcError, Metadata

from laser_vfl.client.peers import peer_mesh as mesh_module
from laser_vfl.client.peers.peer_mesh import PeerMesh, PeerStreamServicer
from laser_vfl.client.peers.step_transport import tagged
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.core.errors import LaserError
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport import reloading_channel as lines
from laser_vfl.v1 import peer_pb2 as pb

RUN = "run-1"
ROSTER = ("bank", "shop", "club")
REPRESENTATION = pb.FRAME_KIND_REPRESENTATION


class Stream:
    """One call of Exchange: what the caller writes the callee reads, and the other way round."""

    def __init__(self, behaviour):
        self._to_caller, self._to_callee = asyncio.Queue(), asyncio.Queue()
        self.is_held = False
        """Whether what is written stays under way."""
        self._ended = asyncio.Event()
        self.why = ""
        callee = SimpleNamespace(
            read=lambda: self._get(self._to_callee),
            write=lambda data: self._put(self._to_caller, data),
        )
        self._work = asyncio.create_task(self._serve(behaviour, callee))

    async def read(self):
        return await self._get(self._to_caller)

    async def write(self, data):
        await self._put(self._to_callee, data)

    def cut(self, why="the wire was cut"):
        self.why = self.why or why
        self._ended.set()
        self._work.cancel()

    async def _serve(self, behaviour, callee):
        try:
            await behaviour(None, callee)
        except LaserError as error:
            self.why = error.message
        finally:
            self._ended.set()

    async def _put(self, queue, data):
        if self._ended.is_set():
            raise self._failure()
        if not self.is_held:
            queue.put_nowait(pb.Frame.FromString(data))

    async def _get(self, queue):
        found, ended = (asyncio.ensure_future(w) for w in (queue.get(), self._ended.wait()))
        try:
            await asyncio.wait([found, ended], return_when=asyncio.FIRST_COMPLETED)
            if self._ended.is_set():
                raise self._failure()
            return found.result()
        finally:
            for wait in (found, ended):
                wait.cancel()

    def _failure(self):
        return AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), self.why)


class Wire:
    """All clients' streams, by the address that was dialled."""

    def __init__(self, monkeypatch):
        self.receptions = {}
        self.streams = []
        self.is_down = False
        monkeypatch.setattr(lines, "open_channel", self._open_channel)
        monkeypatch.setattr(mesh_module, "open_exchange", self.open)
        for name in ("FIRST_RETRY_S", "LONGEST_RETRY_S"):
            monkeypatch.setattr(mesh_module, name, 0.001)

    def _open_channel(self, address, credentials, to, options):
        async def close():
            pass

        return SimpleNamespace(address=address, close=close)

    def open(self, channel):
        if self.is_down:
            raise AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "down")
        self.streams.append(Stream(self.receptions[channel.address].serve))
        return self.streams[-1]


class Client:
    """One process of a client."""

    def __init__(self, wire, name, incarnation):
        self.peer = Peer(ROSTER.index(name), name, incarnation, f"{name}:{incarnation}")
        self.num_changes = 0
        self.accused = []
        self.mesh = PeerMesh(RUN, self.peer, ROSTER, Credentials(), [], self._changed, self._accuse)
        self.reception = wire.receptions[self.peer.address] = PeerStreamServicer()
        self.reception.open(self.mesh)

    def _changed(self):
        self.num_changes += 1

    def _accuse(self, peer, reason):
        self.accused.append((peer, reason))

    def connect_to(self, *others):
        self.mesh.connect_to([other.peer for other in others])

    def begin(self, generation, *others):
        """Train with others by a view of this generation."""
        self.connect_to(*others)
        peers = tuple(other.peer for other in others)
        self.view = MemberView(RUN, generation, self.peer, peers, (), (), 0)
        self.mesh.begin(self.view)

    def send(self, other, step, kind=REPRESENTATION):
        frame = tagged(self.view, kind, step).SerializeToString()
        self.mesh.send([(other.peer.index, kind, frame)])

    def holds(self, other, step, kind=REPRESENTATION):
        return (other.peer.index, kind, step) in self.mesh.buffer._frames

    def is_up(self, other):
        reports = {report.incarnation: report.up for report in self.mesh.reports()}
        return reports.get(other.peer.incarnation)


async def until(condition):
    """Wait until something is so."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def while_time_passes(condition):
    """See that something stays so for a while."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert condition()


async def hang_up(*clients):
    for client in clients:
        client.reception.close()
        with suppress(Exception):
            await client.mesh.close()
