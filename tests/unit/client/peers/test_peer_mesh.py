"""Streams that break and come back, and processes that are not wanted any more."""

import asyncio
import logging

import grpc.aio
import pytest
from google.protobuf.message import DecodeError

from laser_vfl.client.peers import peer_stream as link_module
from laser_vfl.client.peers.peer_stream import StreamLimits
from laser_vfl.client.peers.step_transport import tagged
from laser_vfl.core.errors import ContractError
from laser_vfl.transport.frames import apart, together
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.local_streams import (
    REPRESENTATION,
    Client,
    Wire,
    hang_up,
    until,
    while_time_passes,
)

GRPC = logging.getLogger("grpc._cython.cygrpc")


@pytest.fixture
def play_out(monkeypatch):
    """Run a scene with a bank and a shop whose stream is up; the bank dials."""

    def run(scene):
        async def play():
            wire = Wire(monkeypatch)
            bank, shop = Client(wire, "bank", 1), Client(wire, "shop", 2)
            bank.begin(1, shop)
            shop.begin(1, bank)
            await until(lambda: bank.is_up(shop) and shop.is_up(bank))
            try:
                await scene(wire, bank, shop)
            finally:
                await hang_up(bank, shop)

        asyncio.run(asyncio.wait_for(play(), 20))

    return run


def test_frames_go_both_ways(play_out):
    async def scene(wire, bank, shop):
        bank.send(shop, 4)
        shop.send(bank, 4)
        await until(lambda: bank.holds(shop, 4) and shop.holds(bank, 4))
        assert len(wire.streams) == 1, "the first in the roster dials"

    play_out(scene)


def test_frames_survive_a_cut_and_arrive_once(play_out):
    async def scene(wire, bank, shop):
        bank.send(shop, 4)
        await until(lambda: shop.holds(bank, 4))
        shop.mesh.buffer.take([(0, pb.FRAME_KIND_REPRESENTATION, 4)])
        wire.streams[0].is_held = True
        bank.send(shop, 5)
        shop.send(bank, 4)
        await while_time_passes(lambda: not shop.holds(bank, 5) and not bank.holds(shop, 4))
        wire.streams[0].cut()
        await until(lambda: shop.holds(bank, 5) and bank.holds(shop, 4))
        assert len(wire.streams) == 2
        await until(lambda: shop.mesh.dropped == {"repeated": 1})
        assert not bank.mesh.dropped

    play_out(scene)


def test_what_is_sent_while_the_stream_is_down_arrives_when_it_is_up(play_out):
    async def scene(wire, bank, shop):
        wire.is_down = True
        wire.streams[0].cut()
        await until(lambda: bank.is_up(shop) is False and shop.is_up(bank) is False)
        num_changes = bank.num_changes
        bank.send(shop, 4)
        shop.send(bank, 4)
        wire.is_down = False
        await until(lambda: shop.holds(bank, 4) and bank.holds(shop, 4))
        assert bank.is_up(shop)
        assert bank.num_changes == num_changes + 1, "the coordinator should know at once"

    play_out(scene)


def test_what_belongs_to_an_old_generation_is_not_sent_again(play_out):
    async def scene(wire, bank, shop):
        wire.is_down = True
        wire.streams[0].cut()
        await until(lambda: not bank.is_up(shop))
        bank.send(shop, 4)
        await asyncio.sleep(0)  # a thread's frames are queued by the event loop
        bank.begin(2, shop)
        shop.begin(2, bank)
        bank.send(shop, 7)
        wire.is_down = False
        await until(lambda: shop.holds(bank, 7))
        assert not shop.mesh.dropped

    play_out(scene)


def test_who_broke_the_contract_has_no_stream_until_the_generation_ends(play_out):
    async def scene(wire, bank, shop):
        for one, other, index in ((bank, shop, 1), (shop, bank, 0)):
            one.mesh.refuse(index, "misshapen")
            await refuses_for_a_generation(one, other, "misshapen")

    play_out(scene)


def test_who_broke_the_contract_hears_of_it_by_the_status_of_its_stream(play_out):
    async def scene(wire, bank, shop):
        shop.mesh.refuse(0, "unfit numbers")
        await asyncio.sleep(0)
        shop.begin(2, bank)  # even if the generation ends before the stream does
        await until(lambda: wire.streams[0].why)
        assert wire.streams[0].why == "a tensor of bank is refused: unfit numbers"
        bank.begin(2, shop)
        await until(lambda: bank.is_up(shop) and shop.is_up(bank))

    play_out(scene)


def test_a_stream_that_a_newer_one_replaces_ends_without_blame(play_out):
    async def scene(wire, bank, shop):
        link = shop.mesh._by_index[0]
        shop.mesh.refuse(0, "misshapen")
        await until(lambda: not shop.is_up(bank))
        shop.begin(2, bank)
        bank.begin(2, shop)
        await until(lambda: bank.is_up(shop) and shop.is_up(bank))
        before = wire.streams[-1]
        newer = asyncio.create_task(link.pump(asyncio.Event().wait, None))
        await until(lambda: bank.mesh._by_index[1].num_opened > 2 or before._work.done())
        assert not before._work.cancelled()
        assert not before.why
        newer.cancel()

    play_out(scene)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (None, "no frame"),
        (DecodeError(), "no frame"),
        (pb.Frame(sender="somebody"), "false name"),
        (pb.Frame(sender="shop", incarnation=2, run="run-1", kind=77), "no frame"),
        (pb.Frame(sender="shop", incarnation=2, run="run-1", kind=1), "no frame"),
    ],
)
def test_something_else_than_a_frame_ends_the_stream_and_not_the_link(frame, reason, play_out):
    async def scene(wire, bank, shop):
        link = bank.mesh._by_index[1]

        async def read():
            if isinstance(frame, Exception):
                raise frame
            return frame

        with pytest.raises(ContractError):
            await link.pump(read, None)
        assert offences(bank) == [1]
        assert bank.mesh.offences == {reason: 1}
        assert bank.accused == [("shop", reason)]
        await until(lambda: bank.is_up(shop) and shop.is_up(bank))

    play_out(scene)


def test_who_sends_what_grpc_refuses_has_no_stream_until_the_generation_ends(play_out):
    async def scene(wire, bank, shop):
        for one, other, index in ((bank, shop, 1), (shop, bank, 0)):

            async def read():
                GRPC.debug("Failed to receive any message from Core")
                return grpc.aio.EOF

            with pytest.raises(ContractError, match="a frame above the limit"):
                await one.mesh._by_index[index].pump(read, None)
            await refuses_for_a_generation(one, other, "oversize frame")

    play_out(scene)


def test_an_offence_counts_though_grpc_ends_the_call_at_the_same_moment(play_out):
    async def scene(wire, bank, shop):
        link = shop.mesh._by_index[0]

        async def read():
            asyncio.get_running_loop().call_soon(call.cancel)
            GRPC.debug("Failed to receive any message from Core")
            return grpc.aio.EOF

        call = asyncio.create_task(link.pump(read, None))
        await asyncio.wait([call])
        assert offences(shop) == [1]
        await while_time_passes(lambda: not shop.is_up(bank))

    play_out(scene)


def test_streams_that_end_accuse_nobody(play_out):
    async def scene(wire, bank, shop):
        for _ in range(10):
            num_streams = len(wire.streams)
            wire.streams[-1].cut()
            await until(lambda n=num_streams: len(wire.streams) > n)
            await until(lambda: bank.is_up(shop) and shop.is_up(bank))

            async def read():
                return grpc.aio.EOF

            await shop.mesh._by_index[0].pump(read, None)
            await until(lambda: bank.is_up(shop) and shop.is_up(bank))
        assert offences(bank) == offences(shop) == [0]

    play_out(scene)


@pytest.mark.parametrize("changes", [{"generation": 0}, {"run": "run-0"}, {"rising": True}])
def test_who_sends_nothing_but_useless_frames_breaks_the_contract(changes, play_out, monkeypatch):
    """Old ones, those of another run, and those of ever later generations, which replace others."""
    monkeypatch.setattr(link_module, "MAX_USELESS", 20)

    async def scene(wire, bank, shop):
        for number in range(30):
            frame = {"run": "run-1", "generation": 2 + number, "sender": "bank", "incarnation": 1}
            frame |= {"kind": pb.FRAME_KIND_GRADIENT, "step": 4}
            frame |= {} if "rising" in changes else changes
            wire.streams[0]._to_callee.put_nowait(pb.Frame(**frame))
        await until(lambda: shop.mesh.offences == {"useless frames": 1})
        await until(lambda: "20 useless frames in a row" in wire.streams[0].why)
        await while_time_passes(lambda: not shop.is_up(bank))

    play_out(scene)


def test_a_frame_of_use_makes_up_for_useless_ones(play_out, monkeypatch):
    monkeypatch.setattr(link_module, "MAX_USELESS", 20)

    async def scene(wire, bank, shop):
        for step in range(4):
            for _ in range(20):
                old = pb.Frame(run="run-1", sender="bank", incarnation=1, kind=2)
                wire.streams[0]._to_callee.put_nowait(old)
            bank.send(shop, step)
            await until(lambda step=step: shop.holds(bank, step))
            shop.mesh.buffer.take([(0, pb.FRAME_KIND_REPRESENTATION, step)])
        assert shop.mesh.dropped == {"old generation": 80}
        assert not shop.mesh.offences

    play_out(scene)


def test_a_newer_stream_replaces_an_older_one(play_out):
    """A caller that has lost its stream may be back before the other end has noticed."""

    async def scene(wire, bank, shop):
        old = wire.streams[0]
        bank.send(shop, 4)
        await until(lambda: shop.holds(bank, 4))
        new = wire.open(_to(shop))
        await new.write(bank.mesh.hello(shop.peer))
        assert (await new.read()).kind == pb.FRAME_KIND_HELLO
        await until(old._ended.is_set)
        shop.send(bank, 4)
        assert (await new.read()).step == 4
        assert shop.is_up(bank)

    play_out(scene)


def test_no_more_is_read_than_there_is_room_for(play_out):
    async def scene(wire, bank, shop):
        for step in (4, 5, 6):
            bank.send(shop, step)
        await until(lambda: shop.holds(bank, 5))
        await while_time_passes(lambda: not shop.holds(bank, 6))
        shop.mesh.buffer.take([(0, pb.FRAME_KIND_REPRESENTATION, 4)])
        await until(lambda: shop.holds(bank, 6))

    play_out(scene)


def test_frames_of_one_message_are_not_taken_in_beyond_that_either(play_out):
    async def scene(wire, bank, shop):
        frames = [tagged(bank.view, REPRESENTATION, step).SerializeToString() for step in (4, 5, 6)]
        stream = bank.mesh._by_index[1]
        stream._queue.append(together(frames))
        stream._filled.set()
        await until(lambda: shop.holds(bank, 5))
        await while_time_passes(lambda: not shop.holds(bank, 6))
        shop.mesh.buffer.take([(0, pb.FRAME_KIND_REPRESENTATION, 4)])
        await until(lambda: shop.holds(bank, 6))

    play_out(scene)


def test_frames_that_wait_for_the_writer_travel_in_one_message_if_they_fit(play_out):
    async def scene(wire, bank, shop):
        stream, frame = bank.mesh._by_index[1], tagged(bank.view, REPRESENTATION, 4)
        one = frame.SerializeToString()
        for most_bytes, num in ((2 * len(one), 2), (2 * len(one) - 1, 1), (0, 1)):
            stream._limits = StreamLimits(most_bytes=most_bytes)
            stream._queue.extend([one, one, one])
            assert len(apart(pb.Frame.FromString(stream._next_message()))) == num
            stream._queue.clear()

    play_out(scene)


def test_what_a_process_sends_that_was_left_out_is_counted_as_of_an_earlier_life(play_out):
    async def scene(wire, bank, shop):
        shop.connect_to()
        bank.send(shop, 4)
        await until(lambda: shop.mesh.dropped == {"earlier life": 1})
        assert shop.is_up(bank) is None, "it is not spoken of any more"
        # Nor may it open another stream.
        wire.streams[0].cut()
        await until(lambda: len(wire.streams) > 1 and wire.streams[1].why)
        assert "has to register anew" in wire.streams[1].why

    play_out(scene)


def test_who_was_left_out_and_registers_anew_is_met_as_another(play_out):
    async def scene(wire, bank, shop):
        again = Client(wire, "bank", 3)
        shop.begin(2, again)
        again.begin(2, shop)
        again.send(shop, 4)
        await until(lambda: shop.holds(again, 4))

    play_out(scene)


def test_a_process_that_is_wanted_again_is_met_again(play_out):
    """A restarted coordinator does not name those who want to join before it has heard them."""

    async def scene(wire, bank, shop):
        shop.connect_to()
        shop.connect_to(bank)
        await until(lambda: shop.is_up(bank) and bank.is_up(shop))
        shop.begin(2, bank)
        bank.begin(2, shop)
        bank.send(shop, 4)
        await until(lambda: shop.holds(bank, 4))

    play_out(scene)


def test_a_stream_may_come_before_the_view_that_explains_it(play_out):
    async def scene(wire, bank, shop):
        club = Client(wire, "club", 3)
        shop.connect_to(bank, club)
        await while_time_passes(lambda: not shop.is_up(club))
        club.connect_to(shop)
        await until(lambda: shop.is_up(club) and club.is_up(shop))
        await hang_up(club)

    play_out(scene)


def test_nobody_sends_frames_in_anothers_name(play_out):
    async def scene(wire, bank, shop):
        frame = pb.Frame(run="run-1", generation=1, sender="club", incarnation=1)
        await wire.streams[0].write(frame.SerializeToString())
        await until(lambda: wire.streams[0].why)
        assert "in another's name" in wire.streams[0].why
        await until(lambda: len(wire.streams) == 2 and shop.is_up(bank))

    play_out(scene)


def test_frames_of_another_run_are_dropped(play_out):
    async def scene(wire, bank, shop):
        frame = pb.Frame(run="run-0", generation=1, sender="bank", incarnation=1)
        await wire.streams[0].write(frame.SerializeToString())
        await until(lambda: shop.mesh.dropped == {"other run": 1})

    play_out(scene)


def test_a_stream_that_does_not_begin_with_a_hello_is_refused(play_out):
    async def scene(wire, bank, shop):
        stream = wire.open(_to(shop))
        await stream.write(pb.Frame(run="run-1").SerializeToString())
        await until(lambda: stream.why)
        assert stream.why == str(ContractError("a stream begins with a hello"))

    play_out(scene)


async def refuses_for_a_generation(one, other, reason):
    """See that a client accuses another, and has no stream to it until the next generation."""
    await until(lambda: not one.is_up(other))
    await while_time_passes(lambda: not one.is_up(other))
    assert offences(one) == [1]
    assert one.mesh.offences == {reason: 1}
    assert one.accused == [(other.peer.name, reason)]
    for client, peer in ((one, other), (other, one)):
        client.begin(client.mesh.buffer._generation + 1, peer)
    await until(lambda: one.is_up(other) and other.is_up(one))


def offences(client):
    """What a client reports of its peers."""
    return [report.offences for report in client.mesh.reports()]


class _to:
    """A channel to a client."""

    def __init__(self, client):
        self.address = client.peer.address
