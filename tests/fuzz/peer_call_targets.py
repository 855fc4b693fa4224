"""Calls of peers and operators that a client answers: lists of a ring, hellos, publications."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from fuzzing import Read, Target
from google.protobuf.message import DecodeError
from message_targets import FRAMES
from mutation import apart, changed_message, several
from torch import nn

from laser_vfl.client.alignment import curve as curve_module
from laser_vfl.client.alignment import ring as ring_module
from laser_vfl.client.alignment.ring import Refusal
from laser_vfl.client.peers import peer_mesh as mesh_module
from laser_vfl.client.peers.peer_mesh import PeerMesh, PeerStreamServicer
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.prediction_service import PredictionService
from laser_vfl.client.session.member_view import Peer
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.core.errors import LaserError
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.frames import parsed_frame
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1 import prediction_pb2 as ppb
from tests.support.fakes.local_ring import (
    ALIGNMENT,
    IDS,
    Absorbing,
    Wire,
    blinded,
    call_of,
    list_of,
    promise_of,
    ring_at,
)

ROSTER = ("bank", "shop")
RUN = "run-1"

# -- the ring of an alignment

LISTS = [
    piece
    for owner in ("bank", "club", "shop")
    for piece in (
        pb.HandOnRequest(alignment=ALIGNMENT, sender="bank", incarnation=1, owner=owner),
        pb.HandOnRequest(points=list_of(owner)),
    )
]


def _streams(pieces: list[bytes]) -> list[list[Any]]:
    """Return messages as streams: one begins with each message that says of which alignment.

    After a message that names an owner, that owner's list is whole unless another one follows.
    """
    streams: list[list[Any]] = []
    for data in pieces:
        message = pb.HandOnRequest.FromString(data)
        if not streams or message.alignment or message.sender or message.owner:
            streams.append([])
        streams[-1].append(message)
    return streams


def _open_hand_on(_: Path) -> Read:
    """Lists that come to the shop from a bank, and go on to a club."""
    threads = ThreadPoolExecutor(2)

    async def take(streams: list[list[Any]], wire: Wire) -> None:
        club = Absorbing()
        await wire.listen("club", club.serve)
        call = call_of("bank", "shop", "club")
        async with ring_at(wire, call, "shop", threads) as ring:
            ring.depart({name: promise_of(blinded(IDS, name)) for name in call.names})
            travelling = asyncio.create_task(ring.travel(blinded(IDS, "shop")))
            for stream in streams:
                answer = await wire.hand("shop", *stream)
                if isinstance(answer, grpc.aio.AioRpcError):
                    assert answer.code() is not grpc.StatusCode.INTERNAL
                    assert (answer.details() or "").isprintable()
                else:
                    assert answer.num_points == len(IDS)
            if ring.failure.done():
                refusal = ring.failure.exception()
                assert isinstance(refusal, Refusal)
                assert refusal.peer in call.names
                assert refusal.reason.isprintable()
            whole = {name: points for name, points in club.lists.items() if name != "shop"}
            assert all(len(points) == 32 * len(IDS) for points in whole.values())
            ring.incoming()
            travelling.cancel()
            await asyncio.gather(travelling, return_exceptions=True)

    def read(data: bytes) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for module in (curve_module, ring_module):
                patch.setattr(module, "POINTS_AT_ONCE", 4)
            asyncio.run(take(_streams(apart(data)), Wire(patch)))

    return read


def _open_handed_on(_: Path) -> Read:
    """What the next client answers to a list; the calls of a ring heed its status alone."""

    async def travel(data: bytes, threads: ThreadPoolExecutor, wire: Wire) -> None:
        async def answer(_: Any, context: Any) -> Any:
            while await context.read() is not grpc.aio.EOF:
                pass
            return pb.HandOnResponse.FromString(data)

        await wire.listen("club", answer)
        call = call_of("bank", "shop", "club")
        async with ring_at(wire, call, "shop", threads) as ring:
            ring.depart({name: promise_of(blinded(IDS, name)) for name in call.names})
            travelling = asyncio.create_task(ring.travel(blinded(IDS, "shop")))
            home = list_of("shop")
            first = pb.HandOnRequest(
                alignment=ALIGNMENT, sender="bank", incarnation=1, owner="shop"
            )
            await wire.hand("shop", first, pb.HandOnRequest(points=home))
            if ring.failure.done():
                travelling.cancel()
                assert isinstance(ring.failure.exception(), Refusal)
            await asyncio.gather(travelling, return_exceptions=True)

    threads = ThreadPoolExecutor(2)

    def read(data: bytes) -> None:
        with pytest.MonkeyPatch.context() as patch:
            asyncio.run(travel(data, threads, Wire(patch)))

    return read


# -- the hellos of a stream, at both ends

HELLOS = [
    pb.Frame(
        run=RUN,
        kind=pb.FRAME_KIND_HELLO,
        sender="bank",
        incarnation=1,
        receiver=2,
        public_key=bytes([9]) + bytes(31),
    ),
    *FRAMES,
]


class _Stream:
    """A stream on which frames come as they were made up."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = iter(frames)

    async def read(self) -> Any:
        data = next(self._frames, None)
        return grpc.aio.EOF if data is None else parsed_frame(data)

    async def write(self, _: bytes) -> None:
        """Nobody is there."""


def _mesh(me: Peer, other: Peer) -> PeerMesh:
    mesh = PeerMesh(RUN, me, ROSTER, Credentials(), [], pair_keys=True)
    mesh.connect_to([other])
    return mesh


def _open_hello(_: Path) -> Read:
    bank, shop = Peer(0, "bank", 1, "bank:1"), Peer(1, "shop", 2, "shop:1")
    retired = Peer(0, "bank", 5, "bank:1")

    async def called(frames: list[bytes]) -> None:
        """Somebody opens a stream to the shop; the bank was another process before."""
        mesh = _mesh(shop, retired)
        mesh.connect_to([bank])
        servicer = PeerStreamServicer()
        servicer.open(mesh)
        try:
            with suppress(LaserError, DecodeError):
                await servicer.serve(None, _Stream(frames))
        finally:
            servicer.close()
            await mesh.close()

    async def calling(frames: list[bytes]) -> None:
        """The bank opens a stream, and somebody answers who says that it is the shop."""
        mesh = _mesh(bank, Peer(0, "bank", 1, "bank:1"))
        mesh.connect_to([])
        mesh.connect_to([Peer(0, "shop", 2, "shop:1")])  # which this end does not dial by itself
        try:
            with suppress(LaserError, DecodeError):
                await mesh._dial(mesh._streams[2])
        finally:
            await mesh.close()

    def read(data: bytes) -> None:
        frames = apart(data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mesh_module, "EARLY_S", 0.002)
            patch.setattr(mesh_module, "ReloadingChannel", _NoChannel)
            patch.setattr(mesh_module, "open_exchange", lambda _: _Stream(frames))
            asyncio.run(called(frames))
            asyncio.run(calling(frames))

    return read


class _NoChannel:
    """Leads nowhere."""

    channel = None

    def __init__(self, *_: Any) -> None:
        pass

    def while_fresh(self, _: Any) -> Any:
        return nullcontext()

    async def close(self) -> None:
        pass


# -- operators


def _open_publish(directory: Path) -> Read:
    """An operator publishes a model that is held back."""
    state = StateDirectory(directory / "state")
    state.write_model(RUN, nn.Linear(1, 1), {"scores": None})
    audit: Any = SimpleNamespace(note=lambda *_, **__: None)

    def read(data: bytes) -> None:
        request = ppb.PublishRequest.FromString(data)
        state.keep_next(RUN, is_published=False)
        held = NextModel(state, "hold")
        nothing: Any = None
        service = PredictionService(nothing, nothing, held, nothing, nothing, audit, nothing)
        try:
            asyncio.run(service.publish(request, None))
        finally:
            assert held.holds == (request.run != RUN)
            assert state.read_next() == (RUN, request.run == RUN)

    return read


TARGETS = [
    Target("hand-on", several(changed_message(LISTS)), _open_hand_on, share=2),
    Target("handed-on", changed_message([pb.HandOnResponse(num_points=6)]), _open_handed_on),
    Target("hello", several(changed_message(HELLOS), 4), _open_hello, share=2),
    Target("publish-request", changed_message([ppb.PublishRequest(run=RUN)]), _open_publish),
]
