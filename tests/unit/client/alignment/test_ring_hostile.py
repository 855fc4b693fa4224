"""A hostile predecessor: whatever it sends is refused, it is named, and nothing hangs."""

import asyncio
import contextlib

import grpc
import pytest

from laser_vfl.client.alignment import ring as ring_module
from laser_vfl.client.alignment.ring import Refusal
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.errors import AlignmentOver, ContractError
from laser_vfl.transport.grpc_status import error_from
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.local_ring import (
    ALIGNMENT,
    IDS,
    ROSTER,
    Absorbing,
    blinded,
    call_of,
    cut,
    list_of,
    play,
    promise_of,
    ring_at,
)

NOT_CANONICAL = b"\xff" * 32
LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
TWIST = bytes([2]) + bytes(31)
"""A point of the twist."""


def beside(point):
    """Return the sum of a point and (0, 0), which has order 2."""
    field = 2**255 - 19
    return pow(int.from_bytes(point, "little"), -1, field).to_bytes(32, "little")


class Hostile:
    """A client in the middle of a ring of three, whose predecessor sends what the test says."""

    def __init__(self, wire, ring, club):
        self.wire = wire
        self.ring = ring
        self.club = club

    def first(self, owner, **fields):
        request = pb.HandOnRequest(
            alignment=ALIGNMENT,
            sender="bank",
            incarnation=1,
            owner=owner,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    async def send(self, owner, *pieces, certified=None, **fields):
        messages = [pb.HandOnRequest(points=piece) for piece in pieces]
        return await self.wire.hand(
            "shop", self.first(owner, **fields), *messages, certified=certified
        )

    def check_refused(self, answer, what, *, named="bank", gone=False):
        """A status that says what was wrong, and the ring blames the one who did it."""
        assert isinstance(answer, grpc.aio.AioRpcError), answer
        assert answer.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert what in answer.details()
        assert isinstance(error_from(answer, doing="handing on"), ContractError)
        refusal = self.ring.failure.exception()
        assert isinstance(refusal, Refusal)
        assert (refusal.peer, refusal.gone) == (named, gone)
        assert what in refusal.reason
        assert refusal.reason.isprintable()

    def check_went_no_further(self, owner):
        """A list that is not right is neither handed on whole nor taken as one's own."""
        if owner == "shop":
            assert not self.ring._home.done()
        else:
            assert owner not in self.club.lists
            # The end of a stream that was cancelled looks like any other, so the last points
            # must not be sent before all have been checked: the next one would take it for whole.
            assert len(self.club.arrived.get(owner, b"")) < len(list_of(owner))

    def check_turned_away(self, answer, kind=ContractError):
        """Refused with a status, but nobody is blamed and the ring goes on."""
        assert isinstance(answer, grpc.aio.AioRpcError), answer
        assert isinstance(error_from(answer, doing="handing on"), kind)
        assert not self.ring.failure.done()


@pytest.fixture
def hostile(wire):
    """Return how to run a scenario at the shop, between a bank that is hostile and a club."""

    def run(scenario, *, departs=True, bank=None, times=DEFAULT_TIMES):
        async def inside(threads):
            club = Absorbing()
            await wire.listen("club", club.serve)
            call = call_of("bank", "shop", "club")
            async with ring_at(wire, call, "shop", threads, times) as ring:
                here = Hostile(wire, ring, club)
                promises = {name: promise_of(blinded(IDS, name)) for name in call.names}
                if bank is not None:
                    promises["bank"] = promise_of(bank)
                travelling = None
                if departs:
                    ring.depart(promises)
                    own = blinded(IDS, "shop")
                    travelling = asyncio.create_task(ring.travel(own))
                await scenario(here)
                if travelling is not None:
                    travelling.cancel()
                    await asyncio.gather(travelling, return_exceptions=True)

        play(inside)

    return run


def test_the_right_lists_pass(hostile):
    async def scenario(here):
        coming_home = here.ring._home
        for owner in ("bank", "club", "shop"):
            answer = await here.send(owner, *cut(list_of(owner)))
            assert answer == pb.HandOnResponse(num_points=6)
        assert here.club.lists["bank"] == blinded(IDS, "bank", "shop")
        assert here.club.lists["club"] == blinded(IDS, *ROSTER[:3])
        home = await asyncio.shield(coming_home)
        assert home == blinded(IDS, *ROSTER[:3])
        assert not here.ring.failure.done()

    hostile(scenario)


OWNERS = pytest.mark.parametrize("owner", ["bank", "club", "shop"])
MULTIPLIED = pytest.mark.parametrize("owner", ["bank", "club"])


@OWNERS
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_more_points_than_were_committed_to(hostile, owner, at_once):
    async def scenario(here):
        points = list_of(owner) + blinded(["one-more"], "bank")
        answer = await here.send(owner, *([points] if at_once else cut(points)))
        here.check_refused(answer, "more points than the 6 that were committed to")
        here.check_went_no_further(owner)

    hostile(scenario)


def test_a_list_without_end_is_not_read_to_its_end(hostile):
    async def scenario(here):
        call = here.wire.open(ring_module.open_channel("shop:1"))
        await call.write(here.first("club"))
        num_written = 0
        with contextlib.suppress(asyncio.InvalidStateError):
            for number in range(1000):
                points = blinded([f"guess-{number}"], "bank")
                await call.write(pb.HandOnRequest(points=points))
                num_written += 1
        assert 6 <= num_written < 20
        assert here.ring.failure.exception().peer == "bank"

    hostile(scenario)


@OWNERS
def test_fewer_points_than_were_committed_to(hostile, owner):
    async def scenario(here):
        answer = await here.send(owner, *cut(list_of(owner))[:-1])
        here.check_refused(answer, "after 5 of 6 points", gone=True)
        here.check_went_no_further(owner)

    hostile(scenario)


@OWNERS
def test_a_list_that_stops_half_way(hostile, owner, monkeypatch):
    monkeypatch.setattr(ring_module, "NEXT_S", 0.1)

    async def scenario(here):
        call = here.wire.open(ring_module.open_channel("shop:1"))
        await call.write(here.first(owner))
        await call.write(pb.HandOnRequest(points=list_of(owner)[:32]))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        here.check_refused(refused.value, "nothing came for", gone=True)
        here.check_went_no_further(owner)

    hostile(scenario, times=WaitingTimes(ring_hop_s=0.1))


@OWNERS
def test_no_points_at_all(hostile, owner):
    async def scenario(here):
        here.check_refused(await here.send(owner), "after 0 of 6 points", gone=True)

    hostile(scenario)


@OWNERS
def test_half_a_point(hostile, owner):
    async def scenario(here):
        points = list_of(owner)
        answer = await here.send(owner, points[:-16], points[-16:])
        here.check_refused(answer, "32 bytes each")

    hostile(scenario)


@MULTIPLIED
@pytest.mark.parametrize(
    ("point", "what"),
    [
        (LOW_ORDER, "is of low order"),
        (NOT_CANONICAL, "is not in canonical form"),
        (blinded(["x"])[:31] + b"\xff", "is not in canonical form"),
        (bytes(32), "is of low order"),
    ],
    ids=["low order", "not canonical", "a sign", "zero"],
)
def test_what_no_scalar_may_be_put_on(hostile, owner, point, what):
    """The bank may even have committed to it."""
    pieces = cut(list_of(owner))
    pieces[4] = point

    async def scenario(here):
        here.check_refused(await here.send(owner, b"".join(pieces)), what)
        here.check_went_no_further(owner)

    hostile(scenario, bank=b"".join(pieces) if owner == "bank" else None)


@OWNERS
def test_a_point_that_comes_twice(hostile, owner):
    pieces = cut(list_of(owner))
    pieces[5] = pieces[1]

    async def scenario(here):
        answer = await here.send(owner, *pieces)
        here.check_refused(answer, "1 points come twice")
        here.check_went_no_further(owner)

    hostile(scenario, bank=b"".join(pieces) if owner == "bank" else None)


@MULTIPLIED
def test_different_points_that_become_one(hostile, owner):
    """They differ by a point of low order, which every scalar takes away."""
    pieces = cut(list_of(owner))
    pieces[5] = beside(pieces[1])
    assert len(set(pieces)) == 6

    async def scenario(here):
        here.check_refused(await here.send(owner, *pieces), "1 points come twice")
        here.check_went_no_further(owner)

    hostile(scenario, bank=b"".join(pieces) if owner == "bank" else None)


def test_the_next_client_hears_nothing_of_a_short_list_that_is_refused(hostile, monkeypatch):
    monkeypatch.setattr(ring_module, "POINTS_AT_ONCE", 1024)
    pieces = cut(list_of("bank"))
    pieces[5] = pieces[1]

    async def scenario(here):
        here.check_refused(await here.send("bank", *pieces), "1 points come twice")
        assert "bank" not in here.club.arrived

    hostile(scenario, bank=b"".join(pieces))


def test_a_point_of_the_twist_in_a_list_that_comes_home(hostile):
    pieces = cut(list_of("shop"))
    pieces[4] = TWIST

    async def scenario(here):
        here.check_refused(await here.send("shop", *pieces), "is not a point of the curve")
        here.check_went_no_further("shop")

    hostile(scenario)


@pytest.mark.parametrize("change", ["order", "another"])
def test_a_list_that_is_not_the_one_committed_to(hostile, change):
    async def scenario(here):
        pieces = cut(list_of("bank"))
        if change == "order":
            pieces.reverse()
        else:
            pieces[2] = blinded(["somebody-else"], "bank")
        answer = await here.send("bank", *pieces)
        here.check_refused(answer, "its list is not the one that it committed to")
        here.check_went_no_further("bank")

    hostile(scenario)


@OWNERS
def test_a_list_that_comes_twice(hostile, owner):
    async def scenario(here):
        pieces = cut(list_of(owner))
        assert await here.send(owner, *pieces) == pb.HandOnResponse(num_points=6)
        answer = await here.send(owner, *pieces)
        here.check_refused(answer, f"it sent the list of {owner} twice")

    hostile(scenario)


def test_a_list_that_comes_twice_at_the_same_time(hostile):
    async def scenario(here):
        pieces = cut(list_of("club"))
        answers = await asyncio.gather(*(here.send("club", *pieces) for _ in range(2)))
        here.check_refused(answers[1], "it sent the list of club twice")

    hostile(scenario)


def test_messages_that_bring_nothing_are_no_sign_of_life(hostile):
    """Otherwise a predecessor could keep everybody waiting, and fill the memory with nothing."""

    async def scenario(here):
        pieces = cut(list_of("club"))
        answer = await here.send("club", *pieces[:3], b"", b"", *pieces[3:])
        here.check_refused(answer, "point")

    hostile(scenario)


@pytest.mark.parametrize("owner", ["fund", "thief", "", "bank\n"])
def test_a_list_of_somebody_who_is_no_member(hostile, owner):
    async def scenario(here):
        here.check_turned_away(await here.send(owner, *cut(list_of("bank"))))

    hostile(scenario)


@pytest.mark.parametrize("sender", ["club", "shop", "thief", ""])
def test_lists_come_from_the_one_before_alone(hostile, sender):
    async def scenario(here):
        pieces = cut(list_of("bank"))
        answer = await here.send("bank", *pieces, sender=sender)
        here.check_turned_away(answer)
        assert await here.send("bank", *pieces) == pb.HandOnResponse(num_points=6)

    hostile(scenario)


def test_a_certificate_says_who_sends(hostile):
    async def scenario(here):
        pieces = cut(list_of("bank"))
        answer = await here.send("bank", *pieces, certified="club")
        assert answer.code() == grpc.StatusCode.PERMISSION_DENIED
        assert not here.ring.failure.done()
        answer = await here.send("bank", *pieces, certified="bank")
        assert answer == pb.HandOnResponse(num_points=6)

    hostile(scenario)


@pytest.mark.parametrize("incarnation", [0, 2, 2**64 - 1])
def test_an_earlier_life_of_the_sender_has_no_say(hostile, incarnation):
    async def scenario(here):
        pieces = cut(list_of("bank"))
        here.check_turned_away(await here.send("bank", *pieces, incarnation=incarnation))
        assert await here.send("bank", *pieces) == pb.HandOnResponse(num_points=6)

    hostile(scenario)


@pytest.mark.parametrize("alignment", ["alignment-0", "", "x" * 1000])
def test_another_alignment_is_not_under_way(hostile, alignment):
    async def scenario(here):
        answer = await here.send("bank", *cut(list_of("bank")), alignment=alignment)
        here.check_turned_away(answer, AlignmentOver)
        assert answer.code() == grpc.StatusCode.ABORTED
        assert "x" * 10 not in answer.details()

    hostile(scenario, times=WaitingTimes(ring_connect_s=0.02))


def test_an_empty_stream(hostile):
    async def scenario(here):
        here.check_turned_away(await here.wire.hand("shop"))

    hostile(scenario)


def test_a_list_waits_until_this_client_has_heard_what_was_promised(hostile):
    async def scenario(here):
        early = asyncio.create_task(here.send("bank", *cut(list_of("bank"))))
        await asyncio.sleep(0.01)
        assert not early.done()
        promises = {name: promise_of(blinded(IDS, name)) for name in here.ring.call.names}
        here.ring.depart(promises)
        own = blinded(IDS, "shop")
        travelling = asyncio.create_task(here.ring.travel(own))
        assert await early == pb.HandOnResponse(num_points=6)
        travelling.cancel()
        await asyncio.gather(travelling, return_exceptions=True)

    hostile(scenario, departs=False)


@pytest.mark.parametrize("owner", ["bank", "club"])
def test_who_waits_for_the_promises_is_told_when_the_alignment_ends(hostile, owner):
    async def scenario(here):
        waiting = asyncio.create_task(here.send(owner, *cut(list_of(owner))))
        await asyncio.sleep(0.01)
        await here.ring.close()
        async with asyncio.timeout(1):
            answer = await waiting
        assert isinstance(error_from(answer, doing="handing on"), AlignmentOver)

    hostile(scenario, departs=False)


def test_the_first_failure_is_the_one_that_is_told(hostile):
    async def scenario(here):
        await here.send("club", b"half")
        await here.send("bank", NOT_CANONICAL * 7)
        assert "32 bytes each" in here.ring.failure.exception().reason

    hostile(scenario)


def test_arrivals_are_a_sign_of_life(hostile):
    async def scenario(here):
        before = here.ring.num_messages
        await here.send("club", *cut(list_of("club")))
        assert here.ring.num_messages > before
        between = here.ring.num_messages
        await here.send("club", *cut(list_of("club")), sender="thief")
        assert here.ring.num_messages == between

    hostile(scenario)
