"""Rings in one process: what a client hands on goes to the next one without a socket.

The calls look like gRPC's to both ends, and errors cross them as they do on the wire.
"""

import asyncio
import contextlib
import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import grpc.aio
from grpc.aio import AioRpcError, Metadata

from laser_vfl.client.alignment import ring as ring_module
from laser_vfl.client.alignment.curve import TABLE, Curve
from laser_vfl.client.alignment.ring import Ring, RingServicer
from laser_vfl.client.alignment.ring_call import Promise, RingCall, RingMember
from laser_vfl.client.waiting_times import DEFAULT_TIMES
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.data import POINT_BYTES, hash_to_curve, multiply
from laser_vfl.security.access import AdmittedCall, calling_as
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import client_of
from laser_vfl.transport.grpc_status import AuthInterceptor
from laser_vfl.v1 import peer_pb2 as pb

ROSTER = ("bank", "shop", "club", "fund")
FEDERATION = "trial"
ALIGNMENT = "alignment-1"

WINDOW = 2
"""How many messages may be under way before a writer has to wait."""


class Aborted(grpc.aio.AbortError):
    """How a call ends that has a status."""


class Context:
    """The callee's end of a stream."""

    def __init__(self, certified=None):
        self.inbox = asyncio.Queue(WINDOW)
        self.status = None
        self.certified = certified

    async def read(self):
        return await self.inbox.get()

    def peer(self):
        return "memory:1"

    async def abort(self, code, details="", trailing_metadata=()):
        self.status = (code, details, tuple(trailing_metadata))
        raise Aborted


class OpenGate:
    """Lets everybody in as whom the context says."""

    @contextlib.contextmanager
    def admit(self, method, context):
        name = context.certified
        identity = client_of(FEDERATION, name) if name else None
        with calling_as(identity):
            yield AdmittedCall(identity)


class Call:
    """The caller's end of a stream."""

    def __init__(self, behaviour, certified=None):
        self.context = Context(certified)
        self._is_cancelled = False
        self._work = asyncio.ensure_future(behaviour(None, self.context))
        self._work.add_done_callback(lambda work: work.cancelled() or work.exception())

    async def write(self, request):
        await self._put(pb.HandOnRequest.FromString(request.SerializeToString()))

    async def done_writing(self):
        await self._put(grpc.aio.EOF)

    def cancel(self):
        self._is_cancelled = True
        return self._work.cancel()

    def __await__(self):
        return self._ended().__await__()

    async def _put(self, message):
        if not self._work.done():
            putting = asyncio.ensure_future(self.context.inbox.put(message))
            try:
                await asyncio.wait([putting, self._work], return_when=asyncio.FIRST_COMPLETED)
                if putting.done():
                    return
            finally:
                putting.cancel()
        raise asyncio.InvalidStateError

    async def _ended(self):
        await asyncio.wait([self._work])
        if self._work.cancelled() and not self._is_cancelled:
            await asyncio.Event().wait()  # as with gRPC: such a handler never sends a status
        if self._work.cancelled():
            raise asyncio.CancelledError
        if self.context.status is not None:
            raise _failed(*self.context.status)
        return self._work.result()


def _failed(code, details, trailing):
    return AioRpcError(code, Metadata(), Metadata(*trailing), details)


class Wire:
    """Who answers at which address."""

    def __init__(self, monkeypatch):
        self._behaviours = {}
        monkeypatch.setattr(ring_module, "open_channel", lambda address, *_: Channel(address))
        monkeypatch.setattr(ring_module, "connected", self._connected)
        monkeypatch.setattr(ring_module, "open_hand_on", self.open)

    async def listen(self, name, behaviour):
        """Let somebody answer, with errors as every server has them."""
        handler = grpc.stream_unary_rpc_method_handler(behaviour)

        async def continuation(_):
            return handler

        details = SimpleNamespace(method="/laser_vfl.v1.Peer/HandOn")
        guarded = await AuthInterceptor(OpenGate(), lambda *_: None).intercept_service(
            continuation, details
        )
        self._behaviours[f"{name}:1"] = guarded.stream_unary

    def open(self, channel, certified=None):
        return Call(self._behaviours[channel.address], certified)

    async def hand(self, to, *requests, certified=None, is_whole=True):
        """Send messages as they are; return the answer, or the status that the call ended with."""
        call = self.open(Channel(f"{to}:1"), certified)
        with contextlib.suppress(asyncio.InvalidStateError):
            for request in requests:
                await call.write(request)
            if is_whole:
                await call.done_writing()
        try:
            return await call
        except AioRpcError as error:
            return error

    async def _connected(self, channel):
        if channel.address not in self._behaviours:
            await asyncio.Event().wait()


class Channel:
    """A channel of which only the address matters."""

    def __init__(self, address):
        self.address = address

    async def close(self):
        pass


class Absorbing:
    """Takes whatever list comes, and keeps what has arrived, and those that came whole."""

    def __init__(self):
        self.arrived = {}
        self.lists = {}

    async def serve(self, requests, context):
        first = await context.read()
        points = self.arrived[first.owner] = bytearray(first.points)
        while (message := await context.read()) is not grpc.aio.EOF:
            points += message.points
        self.lists[first.owner] = bytes(points)
        return pb.HandOnResponse(num_points=len(points) // POINT_BYTES)


def member(name):
    return RingMember(name, ROSTER.index(name) + 1, f"{name}:1")


def call_of(*names, id=ALIGNMENT):
    members = tuple(member(name) for name in names)
    return RingCall(id, AlignmentPurpose.RUN, id, members, roster=tuple(names))


def scalar_of(name):
    return bytes([8 * (ROSTER.index(name) + 2)]) + bytes(30) + b"\x40"


def curve_of(name, threads):
    return Curve(scalar_of(name), FEDERATION, ALIGNMENT, threads, 2)


def blinded(ids, *names):
    """Return ids as points under the scalars of some clients."""
    return _blinded(tuple(ids), names)


@functools.cache
def _blinded(ids, names):
    points = hash_to_curve(ids, federation=FEDERATION, run=ALIGNMENT, table=TABLE)
    for name in names:
        points = multiply(points, scalar_of(name))
    return points


def promise_of(points):
    return Promise(len(points) // POINT_BYTES, hashlib.sha256(points).digest())


def cut(points):
    """Return points one by one."""
    return [points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES)]


IDS = tuple(f"person-{number}" for number in range(6))


def list_of(owner):
    """Return the right list of a client, as the bank hands it to the shop."""
    names = {"bank": ["bank"], "club": ["club", "bank"], "shop": ["shop", "club", "bank"]}
    return blinded(IDS, *names[owner])


@contextlib.asynccontextmanager
async def ring_at(wire, call, name, threads, times=DEFAULT_TIMES):
    """A client's ring, open to the others."""
    reception = RingServicer()
    await wire.listen(name, reception.serve)
    ring = Ring(call, name, curve_of(name, threads), Credentials(), times=times)
    async with reception.opened(ring):
        yield ring


def play(scenario, timeout_s=10.0):
    """Run a scenario with two threads for the curve; nothing may hang, and nothing is left."""

    async def run():
        with ThreadPoolExecutor(2) as threads:
            async with asyncio.timeout(timeout_s):
                await scenario(threads)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:  # cancelled tasks end in a moment
                _, left = await asyncio.wait(left, timeout=1.0)
            assert not left

    asyncio.run(run())
