"""Rings: lists come home in order under the scalars of all, and a bad next one is named."""

import asyncio

import grpc
import pytest

from laser_vfl.client.alignment.ring import Refusal
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.errors import AlignmentOver, ContractError
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.local_ring import (
    ROSTER,
    Aborted,
    blinded,
    call_of,
    cut,
    play,
    promise_of,
    ring_at,
)


@pytest.mark.parametrize("has_empty", [False, True])
@pytest.mark.parametrize("num_members", [1, 2, 3, 4])
def test_lists_come_home_in_their_order_under_everybodys_scalar(wire, num_members, has_empty):
    names = ROSTER[:num_members]
    ids = {
        name: [f"person-{number}" for number in range(k, 11, k + 1)][:: 1 - 2 * (k % 2)]
        for k, name in enumerate(names)
    }
    if has_empty:
        ids[names[-1]] = []

    async def member(name, call, promises, threads, home, all_home):
        async with ring_at(wire, call, name, threads) as ring:
            mine = await ring._curve.blind(ids[name])
            assert mine == blinded(ids[name], name)
            ring.depart(promises)
            home[name] = await ring.travel(mine)
            await all_home.wait()  # until then the lists of the others still pass
            assert not ring.failure.done()

    async def scenario(threads):
        call, home, all_home = call_of(*names), {}, asyncio.Barrier(num_members)
        promises = {name: promise_of(blinded(ids[name], name)) for name in ids}
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(member(name, call, promises, threads, home, all_home))
        for name, mine in ids.items():
            assert home[name] == blinded(mine, *names)
        by_id = {}
        for name, mine in ids.items():
            for id, point in zip(mine, cut(bytes(home[name])), strict=True):
                assert by_id.setdefault(id, point) == point
        assert len(set(by_id.values())) == len(by_id)

    play(scenario)


async def next_one(wire, threads, behaviour, check, *, listens=True, times=DEFAULT_TIMES):
    """Let the bank hand its list to a shop that behaves as told; check what it makes of that."""
    call = call_of("bank", "shop")
    async with ring_at(wire, call, "bank", threads, times) as ring:
        if listens:
            await wire.listen("shop", behaviour)
        points = blinded([f"person-{number}" for number in range(40)], "bank")
        promises = {name: promise_of(points) for name in call.names}
        ring.depart(promises)
        travelling = asyncio.create_task(ring.travel(points))
        await asyncio.wait([ring.failure])
        refusal = ring.failure.exception()
        assert isinstance(refusal, Refusal)
        assert (refusal.peer, refusal.gone) == ("shop", True)
        check(refusal.reason)
        assert not travelling.done()
        travelling.cancel()
        await asyncio.gather(travelling, return_exceptions=True)


async def refuses(requests, context):
    await context.read()
    raise ContractError("I do not like it\n\x07" + "x" * 500)


async def has_moved_on(requests, context):
    raise AlignmentOver("that alignment is not under way here")


async def returns_early(requests, context):
    await context.read()
    return pb.HandOnResponse(num_points=40)


async def swears(requests, context):
    await context.read()
    await context.abort(grpc.StatusCode.UNKNOWN, "\x1b[2J\x07 all is well")
    raise Aborted


@pytest.mark.parametrize(
    ("behaviour", "what"),
    [
        (refuses, "it refused a list"),
        (has_moved_on, "it is not in this alignment any more"),
        (returns_early, "it closed the connection"),
        (swears, ""),
    ],
    ids=["refuses", "moved on", "early", "swears"],
)
def test_a_next_one_that_does_not_take_the_list_is_named(wire, behaviour, what):
    def check(reason):
        assert what in reason
        assert reason.isprintable()  # or the coordinator would not pass it on

    async def scenario(threads):
        await next_one(wire, threads, behaviour, check)

    play(scenario)


def test_a_next_one_that_is_not_there_is_named(wire):
    times = WaitingTimes(ring_connect_s=0.02)

    def check(reason):
        assert reason == "it cannot be reached at shop:1"

    async def scenario(threads):
        await next_one(wire, threads, None, check, listens=False, times=times)

    play(scenario)
