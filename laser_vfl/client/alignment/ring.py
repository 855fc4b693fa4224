"""One client's part in a ring: send its own list around, add its scalar to those of the others.

A list begins at its owner, passes every other client once, and comes back with all scalars on it.
Whoever gets one checks it before it goes on: it must be as long as its owner has committed to, of
points in canonical form, none of them twice once it is multiplied, and, first-hand, exactly what
was committed to.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from laser_vfl.client.alignment.curve import POINTS_AT_ONCE, Curve, pieces
from laser_vfl.client.alignment.points_seen import PointsSeen, num_repeated
from laser_vfl.client.alignment.ring_call import Promises, RingCall, RingMember
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.errors import AlignmentOver, ContractError, printable, quoted
from laser_vfl.data import POINT_BYTES, check_points
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.access import identify
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import client_of
from laser_vfl.transport.deadlines import NEXT_S, in_time
from laser_vfl.transport.frames import bytes_read, bytes_written, open_hand_on
from laser_vfl.transport.grpc_status import error_from, heed_cancellation, is_ours
from laser_vfl.transport.message_limits import RING_OPTIONS
from laser_vfl.transport.server import connected, open_channel
from laser_vfl.v1 import peer_pb2 as pb

MOST_CHECKED = 1000
"""How many points of a list that has come home are checked; a bad one there only fails to match."""

CHECKED_PER_S = 200_000
"""How many points even a slow client checks in a second."""


class Refusal(Exception):
    """This client cannot go on, and a peer gave cause; `gone` if it only seems to be gone."""

    def __init__(self, peer: str, reason: str, *, gone: bool = False) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason
        self.gone = gone


@dataclass(frozen=True)
class IncomingList:
    """A list that is on its way here."""

    owner: str
    rank: int
    """How many others it may be waiting for: those that it passes before."""
    num_points: int
    """Of all lists together."""
    begun_at: float | None
    """When its first message came."""


class Ring:
    """The lists of one alignment on their way. It is used once."""

    def __init__(
        self,
        call: RingCall,
        me: str,
        curve: Curve,
        credentials: Credentials,
        traffic: PeerTraffic | None = None,
        times: WaitingTimes = DEFAULT_TIMES,
    ) -> None:
        self._traffic = traffic or PeerTraffic()
        self._times = times
        self.call = call
        self.me = me
        self._curve = curve
        self._next = call.after(me)
        self.previous = call.before(me)
        self._channel = open_channel(
            self._next.address,
            credentials,
            client_of(credentials.federation, self._next.name),
            RING_OPTIONS,
        )
        self._promises: asyncio.Future[Promises] = asyncio.get_running_loop().create_future()
        self._home: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
        self._begun: dict[str, float] = {}
        self._arrived: set[str] = set()
        self._checking = asyncio.Lock()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with a Refusal when this client cannot go on, also after its list is home."""
        self.num_messages = 0
        """How many messages have come; while it grows, the ring is alive."""
        self._is_closed = False
        self._takers: set[asyncio.Task[Any]] = set()
        self.has_departed = False
        """Whether our list is on its way."""

    def incoming(self) -> list[IncomingList]:
        """Return the lists that are on their way and not all here."""
        if not self.has_departed or len(self.call.members) == 1:
            return []
        promises = self._promises.result()
        num_points = sum(promise.num_points for promise in promises.values())
        return [
            IncomingList(
                owner, self.call.hops(owner, self.me) - 1, num_points, self._begun.get(owner)
            )
            for owner in self.call.names
            if promises[owner].num_points and owner not in self._arrived
        ]

    async def close(self) -> None:
        """Let go of everybody who waits."""
        self._is_closed = True
        futures: list[asyncio.Future[Any]] = [self._promises, self.failure, self._home]
        for waiter in (*futures, *self._takers):
            waiter.cancel()
        await self._channel.close()

    def depart(self, promises: Promises) -> None:
        """Let lists travel: everybody has committed to these."""
        self._promises.set_result(promises)
        self.has_departed = True

    async def travel(self, points: bytes | bytearray) -> bytes | bytearray:
        """Send the blinded list of this client around; return it with everybody's scalar on it."""
        if len(self.call.members) == 1 or not points:
            return points
        chunks = pieces(memoryview(points), POINTS_AT_ONCE * POINT_BYTES)
        sender = asyncio.create_task(self._hand_on(self.me, chunks))
        del points, chunks  # the sender lets go of them as soon as they are sent
        try:
            await asyncio.gather(sender, self._home)
            return self._home.result()
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def take(self, first: pb.HandOnRequest, context: Any) -> pb.HandOnResponse:
        """Take a list from the client before this one, and hand it on, or keep it if it is ours."""
        if (first.sender, first.incarnation) != (self.previous.name, self.previous.incarnation):
            raise ContractError(f"lists come to {self.me} from {self.previous.name} alone")
        if first.owner not in self.call.names:
            raise ContractError("that list is of nobody in this alignment")
        self._traffic.received(self.previous.name, "alignment", bytes_read())
        task = asyncio.current_task()
        assert task is not None
        self._takers.add(task)
        try:
            if first.owner in self._begun:
                raise Refusal(first.sender, f"it sent the list of {first.owner} twice")
            self._begun[first.owner] = time.monotonic()
            return await self._pass(first, context)
        except (ContractError, DecodeError) as error:
            found = error.message if isinstance(error, ContractError) else "a message is unreadable"
            self._fail(Refusal(first.sender, f"in the list of {first.owner}, {found}"))
            raise
        except Refusal as refusal:
            self._fail(refusal)
            raise ContractError(refusal.reason) from None
        except asyncio.CancelledError:
            self._fail(_gone(self.previous, f"it broke off the list of {first.owner}"))
            if not self._is_closed or task.uncancel():
                raise
            # A handler that ends by a cancellation sends no status, and its caller waits for ever.
            raise AlignmentOver("that alignment is over here") from None
        finally:
            self._takers.discard(task)

    async def _pass(self, first: pb.HandOnRequest, context: Any) -> pb.HandOnResponse:
        promise = (await asyncio.shield(self._promises))[first.owner]
        arriving = self._checked(first, promise.num_points, context)
        if first.owner == self.me:
            points = await _joined(arriving)
            await self._refuse_repeats(lambda: num_repeated(points))
            await asyncio.to_thread(check_points, points, MOST_CHECKED)
            if not self._home.done():
                self._home.set_result(points)
            return pb.HandOnResponse(num_points=promise.num_points)
        if first.owner == self.previous.name:
            points = await _joined(arriving)
            if await asyncio.to_thread(sha256, points) != promise.sha256:
                raise Refusal(first.owner, "its list is not the one that it committed to")
            arriving = pieces(points, POINTS_AT_ONCE * POINT_BYTES)
        await self._hand_on(first.owner, self._multiplied(arriving))
        return pb.HandOnResponse(num_points=promise.num_points)

    async def _multiplied(self, arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Add this client's scalar to a list, unless a point of it comes twice.

        Points that differ by one of low order become the same, so products are compared; equal
        points have equal products. The last chunk is held back until that is done.
        """
        seen, last = PointsSeen(), b""
        async for products in self._curve.add_scalar(arriving):
            seen.add(products)
            if last:
                yield last
            last = products
        await self._refuse_repeats(seen.num_repeated)
        if last:
            yield last

    async def _refuse_repeats(self, count: Callable[[], int]) -> None:
        async with self._checking:  # one after another, because it takes memory
            repeated = await asyncio.to_thread(count)
        if repeated:
            raise ContractError(f"{repeated} points come twice")

    async def _checked(
        self,
        first: pb.HandOnRequest,
        num_points: int,
        context: Any,
    ) -> AsyncIterator[bytes]:
        """Read a list, and refuse one that is too long or too short."""
        num_read = 0
        message: Any = first
        while message is not grpc.aio.EOF:
            self.num_messages += 1
            if message is not first and not message.points:
                raise ContractError("a message brings no points")
            if len(message.points) % POINT_BYTES:
                raise ContractError(f"points have {POINT_BYTES} bytes each")
            num_read += len(message.points) // POINT_BYTES
            if num_read > num_points:
                raise ContractError(
                    f"there are more points than the {num_points} that were committed to"
                )
            for part in range(0, len(message.points), POINTS_AT_ONCE * POINT_BYTES):
                yield message.points[part : part + POINTS_AT_ONCE * POINT_BYTES]
            message = await self._next_message(first.owner, context)
        if num_read < num_points:
            raise Refusal(
                self.previous.name,
                f"it broke off the list of {first.owner} after {num_read} of {num_points} points",
                gone=True,
            )
        self._arrived.add(first.owner)

    async def _next_message(self, owner: str, context: Any) -> Any:
        """Read on. The sender may be checking lists before it lets go of the last points of one."""
        promises = self._promises.result()
        num_points = sum(promise.num_points for promise in promises.values())
        hops_s = (self.call.hops(owner, self.me) - 1) * self._times.ring_hop_s
        patience_s = NEXT_S + num_points / CHECKED_PER_S + hops_s
        try:
            message = await in_time(context.read(), patience_s)
            if message is not grpc.aio.EOF:
                self._traffic.received(self.previous.name, "alignment", bytes_read())
            return message
        except ContractError as error:
            reason = f"in the list of {owner}, {error.message}"
            raise Refusal(self.previous.name, reason, gone=True) from None

    async def _hand_on(self, owner: str, chunks: AsyncIterator[bytes]) -> None:
        """Hand a list to the next client, once there is something of it.

        Of a short list that is refused the next client so hears nothing, and not a broken stream.
        """
        first = await anext(chunks, b"")
        try:
            async with asyncio.timeout(self._times.ring_connect_s):
                await connected(self._channel)
            call = open_hand_on(self._channel)
            try:
                await self._write(call, owner, first, chunks)
                await call
            finally:
                call.cancel()
        except TimeoutError:
            self._fail(_gone(self._next, f"it cannot be reached at {self._next.address}"))
        except asyncio.InvalidStateError:
            self._fail(_gone(self._next, "it closed the connection"))
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            found = error_from(error, doing="it broke off")
            if isinstance(found, AlignmentOver):
                self._fail(_gone(self._next, "it is not in this alignment any more"))
            elif is_ours(error):
                self._fail(_gone(self._next, f"it refused a list: {quoted(found.message)}"))
            else:
                self._fail(_gone(self._next, printable(found.message)))

    async def _write(
        self, call: Any, owner: str, first: bytes, chunks: AsyncIterator[bytes]
    ) -> None:
        me = self.call.members[self.call.names.index(self.me)]
        request = pb.HandOnRequest(
            alignment=self.call.id,
            sender=me.name,
            incarnation=me.incarnation,
            owner=owner,
        )
        try:
            await call.write(request)
            self._traffic.sent(self._next.name, "alignment", bytes_written())
            points: bytes | None = first
            while points is not None:
                await call.write(pb.HandOnRequest(points=bytes(points)))
                self._traffic.sent(self._next.name, "alignment", bytes_written())
                points = await anext(chunks, None)
            await call.done_writing()
        except asyncio.InvalidStateError:
            await call  # which says why
            raise

    def _fail(self, refusal: Refusal) -> None:
        if not self.failure.done():
            self.failure.set_exception(refusal)
            self.failure.exception()  # it may be that nobody asks


class RingServicer:
    """Where lists arrive, whatever alignment is under way."""

    def __init__(self) -> None:
        self._ring: Ring | None = None

    @contextlib.asynccontextmanager
    async def opened(self, ring: Ring) -> AsyncIterator[None]:
        """Let the members of a ring in, for as long as this client takes part."""
        self._ring = ring
        try:
            yield
        finally:
            self._ring = None
            await asyncio.shield(ring.close())

    async def serve(self, requests: Any, context: Any) -> pb.HandOnResponse:
        """Take a list in. Everybody is in the ring before it commits, so before lists travel."""
        first = await in_time(context.read())
        if first is grpc.aio.EOF or first.points:
            raise ContractError("a list begins with the alignment and its owner, and no points")
        identify(first.sender)
        ring = self._ring
        if ring is None or ring.call.id != first.alignment:
            raise AlignmentOver("that alignment is not under way here")
        return await ring.take(first, context)


def _gone(peer: RingMember, reason: str) -> Refusal:
    return Refusal(peer.name, reason, gone=True)


async def _joined(chunks: AsyncIterator[bytes]) -> bytearray:
    whole = bytearray()
    async for chunk in chunks:
        whole += chunk
    return whole


def sha256(points: bytes | bytearray) -> bytes:
    """Return what a client commits to for these points."""
    return hashlib.sha256(points).digest()
