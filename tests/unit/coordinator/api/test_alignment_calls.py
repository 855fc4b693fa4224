"""The RPCs of an alignment, called without a network."""

import asyncio

import pytest

from laser_vfl.coordinator.api import coordinator_service as service_module
from laser_vfl.core.alignment_purpose import TABLES_UNFIT
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
    DataError,
    IdentityError,
    NotRegistered,
    TrainingStopped,
)
from laser_vfl.security.access import calling_as
from laser_vfl.security.identity import client_of
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.coordinator_calls import OTHER, POINT, called, play_out


def test_an_alignment_from_the_call_to_the_rows():
    async def scene(service, a, b):
        call = await called(a, b)
        assert (call.id, call.purpose, call.run) == ("run-1", pb.PURPOSE_RUN, "run-1")
        assert [(m.client, m.incarnation, m.address) for m in call.members] == [
            ("a", a.incarnation, "a:1"),
            ("b", b.incarnation, "b:1"),
        ]
        await a.commit("run-1", num_points=2)
        fetching = [asyncio.create_task(caller.fetch("run-1")) for caller in (a, b)]
        await b.commit("run-1", num_points=2)
        for caller in (a, b):
            told = (await caller.hear("commitments")).commitments
            assert [c.client for c in told] == ["a", "b"]
            assert {(c.num_points, c.sha256) for c in told} == {(2, bytes(32))}
        # A list comes in pieces of any size.
        await a.submit("run-1", POINT[:5], POINT[5:], OTHER, tables=b"\1\2")
        assert not any(task.done() for task in fetching)
        await b.submit("run-1", b"", OTHER, POINT, tables=b"\2\3")
        of_a, of_b = await asyncio.gather(*fetching)
        for told in (of_a, of_b):
            groups = {m.table: [(g.observed, g.size) for g in m.groups] for m in told if m.groups}
            assert groups == {
                pb.TABLE_TRAIN: [(1, 1)],
                pb.TABLE_TEST: [(3, 1)],
                pb.TABLE_SERVE: [(3, 2)],
            }
        one = bytes([1]) + bytes(7)
        train, test = (pb.TABLE_TRAIN, 0, bytes(8)), (pb.TABLE_TEST, 0, bytes(8))
        for messages, expected in (
            (of_a, [train, test, (pb.TABLE_SERVE, 0, bytes(8) + one)]),
            (of_b, [test, (pb.TABLE_SERVE, 0, one + bytes(8))]),
        ):
            rows = [(m.table, m.rows.group, m.rows.rows) for m in messages if m.rows.rows]
            assert rows == expected

    play_out(scene, "a", "b")


async def check_ended(alignment, reason, *callers):
    """All are told that `a` is to blame, and for what."""
    with pytest.raises(TrainingStopped, match=reason):
        await callers[-1].fetch(alignment)
    for caller in callers:
        told = (await caller.hear("stopped")).stopped
        assert told.run == alignment
        assert told.reason.startswith("a cannot take part in the alignment: ")
        assert reason in told.reason


def test_nobody_commits_to_more_people_than_the_coordinator_takes():
    async def scene(service, a, b):
        alignment = (await called(a, b)).id
        with pytest.raises(ContractError, match="raise max_people") as refused:
            await a.commit(alignment, num_points=3)
        await check_ended(alignment, refused.value.message, a, b)

    play_out(scene, "a", "b", max_people=2)


def test_a_list_that_is_not_committed_to_is_no_longer_than_the_coordinator_takes():
    async def scene(service, a, b):
        alignment = (await called(a, b)).id
        with pytest.raises(ContractError, match="than the 2 that max_people") as refused:
            await a.submit(alignment, POINT, OTHER, bytes([3] * 32), table=pb.TABLE_TRAIN)
        await check_ended(alignment, refused.value.message, a, b)

    play_out(scene, "a", "b", scheme="hmac", max_people=2)


@pytest.mark.parametrize(
    ("pieces", "tables", "reason"),
    [
        ([POINT, POINT], b"\1\1", "submitted twice"),
        ([POINT, OTHER[:-1]], b"\1\1", "32 bytes each"),
        ([POINT], b"\1", "a committed to 2 points and submitted 1"),
        ([POINT, OTHER, bytes(32)], b"\1\1", "a committed to 2 points"),
        ([POINT, OTHER], b"\1\1\1", "a committed to 2 points"),
        ([POINT, OTHER], b"\1", "in one of the tables"),
        ([POINT, OTHER], b"", "in one of the tables"),
        ([POINT, OTHER], b"\1\0", "in one of the tables"),
        ([POINT, OTHER], b"\1\4", "in one of the tables"),
    ],
)
def test_a_list_that_is_refused_ends_the_alignment_and_all_hear_why(pieces, tables, reason):
    async def scene(service, a, b):
        await called(a, b)
        await a.commit("run-1", num_points=2)
        await b.commit("run-1")
        await b.submit("run-1")
        with pytest.raises(ContractError, match=reason):
            await a.submit("run-1", *pieces, tables=tables)
        await check_ended("run-1", reason, a, b)

    play_out(scene, "a", "b")


@pytest.mark.parametrize(
    ("pause_s", "reason"), [(60.0, "nothing came for 0.2 s"), (0.05, "comes too slowly")]
)
def test_a_list_that_does_not_come_on_ends_the_alignment(pause_s, reason, monkeypatch):
    """Silence, and pieces that are always just in time."""
    monkeypatch.setattr(service_module, "NEXT_S", 0.2)

    async def scene(service, a, b):
        await called(a, b)
        await a.commit("run-1", num_points=100)
        await b.commit("run-1")

        async def pieces():
            yield pb.SubmitIdsRequest(
                client="a", incarnation=a.incarnation, alignment="run-1", table=pb.TABLE_SERVE
            )
            for number in range(100):
                await asyncio.sleep(pause_s)
                yield pb.SubmitIdsRequest(blinded=bytes([number] * 32))

        with pytest.raises(ContractError, match=reason):
            await service.SubmitIds(pieces(), a)
        await check_ended("run-1", reason, a, b)

    play_out(scene, "a", "b")


def test_what_is_in_a_table_is_told_to_its_owner_alone():
    async def scene(service, a, b):
        await called(a, b)
        await b.submit("run-1", table=pb.TABLE_TRAIN)
        with pytest.raises(DataError, match="1 samples of the test table of a"):
            await a.submit("run-1", table=pb.TABLE_TEST)
        await check_ended("run-1", TABLES_UNFIT, a, b)

    play_out(scene, "a", "b", scheme="hmac")


def test_a_list_for_another_alignment_harms_nobody():
    async def scene(service, a, b):
        await called(a, b)
        for word in (a.commit, a.submit):
            with pytest.raises(AlignmentOver):
                await word("run-0")
        await a.commit("run-1")
        await b.commit("run-1")
        await a.submit("run-1")
        await b.submit("run-1")
        assert await a.fetch("run-1")

    play_out(scene, "a", "b")


@pytest.mark.parametrize("has_committed", [False, True])
def test_no_more_is_read_than_was_committed_to(has_committed):
    async def scene(service, a, b):
        await called(a, b)
        num_read = 0

        async def endless():
            nonlocal num_read
            yield pb.SubmitIdsRequest(
                client="a", incarnation=a.incarnation, alignment="run-1", table=pb.TABLE_SERVE
            )
            for _ in range(1000):
                num_read += 1
                yield pb.SubmitIdsRequest(blinded=POINT)

        await a.commit("run-1")
        reason = "not everybody has committed yet"
        if has_committed:
            await b.commit("run-1")
            reason = "a committed to 1 points"
        with pytest.raises(ContractError, match=reason):
            await service.SubmitIds(endless(), a)
        assert num_read <= 2
        await check_ended("run-1", reason, a, b)

    play_out(scene, "a", "b")


def test_a_commitment_is_checked():
    async def scene(service, a, b):
        await called(a, b)
        with pytest.raises(ContractError, match="a commitment is a SHA-256"):
            await a.commit("run-1", sha256=bytes(20))
        await check_ended("run-1", "a commitment is a SHA-256", a, b)

    play_out(scene, "a", "b")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pb.TABLE_UNSPECIFIED, "one of the tables"),
        (pb.TABLE_TRAIN, "a list of the train table is not submitted now"),
    ],
)
def test_the_list_of_everybody_is_submitted_alone(table, reason):
    async def scene(service, a, b):
        await called(a, b)
        for caller in (a, b):
            await caller.commit("run-1")
        with pytest.raises(ContractError, match=reason):
            await a.submit("run-1", table=table)
        await check_ended("run-1", reason, a, b)

    play_out(scene, "a", "b")


def test_a_stranger_commits_to_nothing_and_ends_nothing():
    async def scene(service, a, b):
        await called(a, b)
        a.incarnation += 7
        with pytest.raises(NotRegistered):
            await a.commit("run-1", sha256=b"")
        a.incarnation -= 7
        await a.commit("run-1")

    play_out(scene, "a", "b")


def test_who_waits_for_its_rows_hears_why_there_are_none():
    async def scene(service, a, b):
        await called(a, b)
        fetching = asyncio.create_task(b.fetch("run-1"))
        await asyncio.sleep(0)
        with pytest.raises(ContractError, match="cannot be a reason"):
            await a.refuse("run-1", "b", "two\nlines")
        with pytest.raises(ContractError, match="cannot be the name of a client"):
            await a.refuse("run-1", "\x1b", "it does not fit")
        await a.refuse("run-1", "b", "it sent a point twice")
        with pytest.raises(TrainingStopped, match="a refused b in the alignment: it sent a point"):
            await fetching
        for caller in (a, b):
            assert (await caller.hear("stopped")).stopped.run == "run-1"

    play_out(scene, "a", "b")


def test_who_waits_for_the_rows_of_a_dry_run_hears_why_there_are_none():
    async def scene(service, a, b):
        for caller in (a, b):
            await caller.register()
            caller.open()
            await caller.heard.get()
        await a.dry_run()
        call = await b.hear("call")
        assert call.purpose == pb.PURPOSE_DRY_RUN
        fetching = asyncio.create_task(b.fetch(call.id))
        await asyncio.sleep(0)
        await a.refuse(call.id, "a", "its table cannot be read")
        with pytest.raises(AlignmentRefused, match="a cannot take part in the alignment: its"):
            await fetching
        # Nobody's registration ends with it.
        assert (await b.heard.get()).HasField("gathering")

    play_out(scene, "a", "b")


def test_the_next_dry_run_begins_when_all_have_their_rows():
    async def scene(service, a, b):
        for caller in (a, b):
            await caller.register()
            caller.open()
            await caller.heard.get()
        for _ in range(3):
            await a.dry_run()
            first, second = await asyncio.gather(a.take_part(), b.take_part())
            assert first == second
            await asyncio.gather(a.fetch(first), b.fetch(first))

    play_out(scene, "a", "b")


def test_nobody_speaks_for_another():
    async def scene(service, a, b):
        await called(a, b)
        for caller in (a, b):
            await caller.commit("run-1")
        await a.submit("run-1")
        mine, b.client, b.incarnation = b.incarnation, "a", a.incarnation
        for deed in (
            lambda: b.register(),
            lambda: b.commit("run-1"),
            lambda: b.submit("run-1"),
            lambda: b.fetch("run-1"),
            lambda: b.refuse("run-1", "a", "it is not who it says"),
            lambda: b.dry_run(),
            lambda: service.Session(b._requests(), b),
        ):
            b.beat()
            with (
                calling_as(client_of("churn", "b")),
                pytest.raises(IdentityError, match='names spiffe://churn/client/b, not client "a"'),
            ):
                await deed()
        b.client, b.incarnation = "b", mine
        await b.submit("run-1")
        assert await a.fetch("run-1")

    play_out(scene, "a", "b")


def test_one_list_at_a_time():
    async def scene(service, a, b):
        await called(a, b)
        for caller in (a, b):
            await caller.commit("run-1")
        gate = asyncio.Event()

        async def slow():
            yield pb.SubmitIdsRequest(
                client="a", incarnation=a.incarnation, alignment="run-1", table=pb.TABLE_SERVE
            )
            await gate.wait()

        first = asyncio.create_task(service.SubmitIds(slow(), a))
        await asyncio.sleep(0)
        with pytest.raises(ContractError, match="a submits its serve list twice"):
            await a.submit("run-1")
        gate.set()
        with pytest.raises(AlignmentRefused):
            await first

    play_out(scene, "a", "b")
