"""Alignments that end early: all hear why, and whoever gave cause is named."""

import asyncio
import contextlib
import json
import threading

import numpy as np
import pytest

from laser_vfl.client.alignment.aligner import submit
from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.session.outcome_checks import check_members
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
)
from laser_vfl.data import POINT_BYTES
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.data.client_people import digests_at
from tests.support.fakes.local_alignment import (
    IDS,
    Client,
    LocalAlignment,
    Seat,
    lists_of,
    num_counted,
    tables,
)
from tests.support.fakes.local_ring import play


@contextlib.asynccontextmanager
async def aligning_alone(wire, hall, directory, name="bank", times=DEFAULT_TIMES):
    """Let one client align with others that the test plays, and begin when all have committed."""
    client = Client(wire, name, directory, times=times)
    work = asyncio.create_task(client.align(hall, lists_of(name, IDS[name])))
    seats = [Seat(hall, other) for other in hall.call.names if other != name]
    for seat in seats:
        await seat.commit(hall.call.id, 1, bytes(32))
    await Seat(hall, name).directive(lambda told: bool(told.gathering.call.commitments))
    try:
        yield work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def absorb(requests, context):
    """Take a list and never answer."""
    await asyncio.Event().wait()


def test_a_ring_in_which_nothing_comes_stands_still_because_of_the_one_before(wire, tmp_path):
    times = WaitingTimes(ring_stall_s=0.05, ring_hop_s=0.01, ring_grace_s=0.02)

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path, times=times) as work:
            with pytest.raises((AlignmentOver, AlignmentRefused)):
                await work
        ((by, peer, reason, unreachable),) = hall.refusals
        assert (by, peer, unreachable) == ("bank", "club", True)
        assert "nothing has come from it" in reason

    play(scenario)


def test_the_coordinator_may_notice_first_that_somebody_has_died(wire, tmp_path):
    times = WaitingTimes(ring_stall_s=0.02, ring_hop_s=0.01)

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path, times=times) as work:
            await asyncio.sleep(0.1)
            assert not work.done()
            await hall.end(AlignmentOver("lost club: its session ended"))
            with pytest.raises(AlignmentOver):
                await work
        assert not hall.refusals

    play(scenario)


def test_an_alignment_that_the_coordinator_ends_is_over_at_once(wire, tmp_path):
    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await hall.end(AlignmentRefused("shop refuses because of club"))
            with pytest.raises(AlignmentRefused):
                await work

    play(scenario)


class Absorbing:
    """Takes lists and never answers; lists are on their way when they have been counted."""

    def __init__(self):
        self.has_begun = asyncio.Event()

    async def serve(self, requests, context):
        self.has_begun.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    "end",
    [
        AlignmentOver("lost club: its session ended"),
        AlignmentRefused("shop refused club in the alignment: the train list comes twice"),
    ],
    ids=["lost", "spoilt"],
)
def test_what_others_end_because_of_each_other_costs_this_client_nothing(wire, tmp_path, end):
    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        shop = Absorbing()
        await wire.listen("shop", shop.serve)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await shop.has_begun.wait()
            assert num_counted(tmp_path) == 1
            await hall.end(end)
            with pytest.raises(type(end)):
                await work

    play(scenario)
    assert num_counted(tmp_path) == 0


def test_who_refuses_another_does_not_pay_for_it(wire, tmp_path):
    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        shop = Absorbing()
        await wire.listen("shop", shop.serve)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await shop.has_begun.wait()
            assert num_counted(tmp_path) == 1
            await spoil(wire, hall)
            with pytest.raises(AlignmentRefused):
                await work

    play(scenario)
    assert num_counted(tmp_path) == 0


def test_what_ends_while_it_is_counted_is_given_back_too(wire, tmp_path, monkeypatch):
    begun, ended = threading.Event(), threading.Event()
    note = AlignmentLedger.note

    def slow(ledger, purpose):
        begun.set()
        assert ended.wait(10)
        note(ledger, purpose)

    monkeypatch.setattr(AlignmentLedger, "note", slow)

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await asyncio.to_thread(begun.wait, 10)
            await hall.end(AlignmentOver("lost club: its session ended"))
            asyncio.get_running_loop().call_later(0.05, ended.set)
            with pytest.raises(AlignmentOver):
                await work

    play(scenario)
    assert json.loads((tmp_path / "bank.json").read_text())[0] < 0


def test_what_ends_by_this_clients_own_fault_counts(wire, tmp_path):
    class Unable(Seat):
        async def submit_ids(self, *_):
            raise ContractError("these are not the points that were committed to")

    async def scenario(threads):
        hall = LocalAlignment(("bank",))
        client = Client(wire, "bank", tmp_path)
        with pytest.raises(ContractError):
            await client.align(hall, lists_of("bank", IDS["bank"]), seat=Unable(hall, "bank"))

    play(scenario)
    assert num_counted(tmp_path) == 1


async def spoil(wire, hall):
    """Send half a point as the one before the bank."""
    first = pb.HandOnRequest(
        alignment=hall.call.id,
        sender="club",
        incarnation=3,
        owner="club",
    )
    await wire.hand("bank", first, pb.HandOnRequest(points=bytes(POINT_BYTES // 2)))


def test_who_spoils_a_list_is_named_at_once(wire, tmp_path):
    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await spoil(wire, hall)
            with pytest.raises((AlignmentOver, AlignmentRefused)):
                await work
        ((by, peer, reason, unreachable),) = hall.refusals
        assert (by, peer, unreachable) == ("bank", "club", False)
        assert len(reason) <= 280
        assert reason.isprintable()

    play(scenario)


def test_who_refuses_hears_of_it_as_the_others_do(wire, tmp_path):
    """Otherwise somebody who waits there for a dry run would wait for ever."""

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS), purpose=AlignmentPurpose.DRY_RUN)
        await wire.listen("shop", absorb)
        async with aligning_alone(wire, hall, tmp_path) as work:
            await spoil(wire, hall)
            with pytest.raises(AlignmentRefused):
                await work

    play(scenario)


def test_what_comes_when_the_groups_are_made_already_changes_nothing(wire, tmp_path):
    """The run begins with this client in it; it must not be the only one that gives up."""

    class Late(Seat):
        submitted, grouped = asyncio.Event(), asyncio.Event()

        async def fetch_alignment(self, alignment, tables):
            self.submitted.set()
            await self.grouped.wait()
            return await super().fetch_alignment(alignment, tables)

        async def refuse(self, alignment, peer, reason, *, unreachable):
            self.grouped.set()
            raise AlignmentOver("that alignment is not under way any more")

    async def scenario(threads):
        hall = LocalAlignment(("bank",))
        seat = Late(hall, "bank")
        client = Client(wire, "bank", tmp_path)
        work = asyncio.create_task(client.align(hall, lists_of("bank", IDS["bank"]), seat=seat))
        await seat.submitted.wait()
        first = pb.HandOnRequest(
            alignment=hall.call.id,
            sender="bank",
            incarnation=1,
            owner="bank",
        )
        await wire.hand("bank", first, pb.HandOnRequest(points=bytes(POINT_BYTES // 2)))
        aligned = await work
        assert aligned.tables["train"].num_rows == 3

    play(scenario)


def test_the_own_commitment_comes_back_as_it_was_made(wire, tmp_path):
    async def scenario(threads):
        class Lying(LocalAlignment):
            @property
            def directive(self):
                told = super().directive
                for commitment in told.gathering.call.commitments:
                    commitment.num_points += 1
                return told

        hall = Lying(("bank",))
        with pytest.raises(ContractError):
            await Client(wire, "bank", tmp_path).align(hall, lists_of("bank", IDS["bank"]))

    play(scenario)


@pytest.mark.parametrize(
    ("groups", "rows"),
    [
        ([(1, 2)], {0: [0, 1]}),
        ([(1, 4)], {0: [0, 1, 2, 3]}),
        ([(1, 3)], {0: [0, 1, 1]}),
        ([(1, 3)], {0: [0, 1, -1]}),
        ([(1, 2)], {0: [0, 1, 2]}),
        ([(1, 3)], {1: [0, 1, 2]}),
        ([(1, 2), (3, 2)], {0: [0, 1], 1: [1, 2]}),
        ([], {}),
        ([(2, 3)], {0: [0, 1, 2]}),
        ([(1, 3), (3, 2)], {0: [0, 1, 2]}),
        ([(1, 3), (4, 1)], {0: [0, 1, 2]}),
        ([(1, 3), (0, 1)], {0: [0, 1, 2]}),
    ],
    ids=[
        "few",
        "many",
        "twice",
        "negative",
        "size",
        "beyond",
        "two groups",
        "none",
        "somebody else's",
        "ours without rows",
        "nobody on the roster",
        "nobody at all",
    ],
)
def test_an_outcome_that_does_not_place_each_row_once_is_refused(groups, rows):
    told = ClientAlignment(
        tuple(Group(*group) for group in groups),
        {g: np.array(places, np.int64) for g, places in rows.items()},
    )

    class Lying(Seat):
        async def fetch_alignment(self, alignment, tables):
            return {"train": told}

    async def scenario(threads):
        hall = LocalAlignment(("bank", "shop"))
        lists = {"train": digests_at("bank", ["a", "b", "c"])}
        with pytest.raises(ContractError, match="the coordinator"):
            await submit(Lying(hall, "bank"), hall.call, "bank", lists, 1000)

    play(scenario)


def test_groups_that_give_somebody_more_than_it_has_brought_are_refused(wire, tmp_path):
    """So that nobody is given people by the coordinator alone."""

    class Lying(Seat):
        async def fetch_alignment(self, alignment, tables):
            outcome = await super().fetch_alignment(alignment, tables)
            for table, told in outcome.items():
                everybodys = tuple(Group(0b111, group.size) for group in told.groups)
                outcome[table] = ClientAlignment(everybodys, told.rows)
            return outcome

    async def scenario(threads):
        hall = LocalAlignment(("bank", "shop", "club"))
        alike = {name: tables(["ada", "bob", "cyd"], []) for name in ("bank", "shop")}
        ids = {**alike, "club": tables(["dan"], [])}
        work = [
            Client(wire, name, tmp_path).align(
                hall, lists_of(name, mine), seat=(Lying if name == "bank" else Seat)(hall, name)
            )
            for name, mine in ids.items()
        ]
        bank, *_ = await asyncio.gather(*work, return_exceptions=True)
        assert isinstance(bank, ContractError), bank

    play(scenario)


def test_nobody_holds_more_than_it_can():
    check_members({"bank": 3, "shop": 0}, {"bank": 3})
    with pytest.raises(ContractError, match="shop holds 4 people, but it has committed to 2"):
        check_members({"bank": 3, "shop": 4}, {"bank": 3, "shop": 2})
    with pytest.raises(ContractError, match="club holds 1 people, but it has committed to 0"):
        check_members({"club": 1}, {})
