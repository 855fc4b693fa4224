"""Memory for requests: never more than there is, everybody's turn comes, all is given back."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.core.errors import LimitExceeded

LONG_S = 30.0


class Calls:
    """Calls that hold something until they are told to end."""

    def __init__(self, budget):
        self.budget = budget
        self.admitted = []
        self._ends = {}
        self._tasks = {}

    async def begin(self, name, amount, patience_s=LONG_S):
        """`name` is that of the caller and of the call: `crm/1`."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._hold(name, amount, patience_s))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def end(self, name):
        self._ends[name].set()
        await self._tasks[name]

    async def cancel(self, name):
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def outcome(self, name):
        return (await asyncio.gather(self._tasks[name], return_exceptions=True))[0]

    async def _hold(self, name, amount, patience_s):
        until = time.monotonic() + patience_s
        async with self.budget.holding(name.partition("/")[0], amount, until):
            self.admitted.append(name)
            await self._ends[name].wait()


def test_what_does_not_fit_waits_for_its_turn():
    async def run():
        calls = Calls(FairBudget(10, "memory"))
        await calls.begin("crm/1", 8)
        await calls.begin("web/1", 4)
        assert calls.admitted == ["crm/1"]
        await calls.end("crm/1")
        await calls.begin("web/2", 1)
        assert calls.admitted == ["crm/1", "web/1", "web/2"]

    asyncio.run(run())


def test_a_caller_that_asks_without_end_leaves_something_to_others():
    async def run():
        calls = Calls(FairBudget(10, "memory"))
        for number in range(10):
            await calls.begin(f"crm/{number}", 2)
        assert len(calls.admitted) == 2, "half of all"
        await calls.begin("web/1", 4)
        assert calls.admitted[-1] == "web/1"

    asyncio.run(run())


def test_who_was_served_longest_ago_goes_first_and_nobody_overtakes_a_large_request():
    async def run():
        calls = Calls(FairBudget(10, "memory"))
        await calls.begin("crm/1", 9)
        await calls.begin("crm/2", 9)
        await calls.begin("web/1", 9)
        await calls.begin("app/1", 2)
        await calls.end("crm/1")
        assert calls.admitted == ["crm/1", "web/1"], "web had nothing yet, and crm had"
        await calls.begin("crm/3", 1)
        assert len(calls.admitted) == 2, "app comes first, although crm would fit"
        await calls.end("web/1")
        assert calls.admitted == ["crm/1", "web/1", "app/1"]
        await calls.end("app/1")
        assert calls.admitted[3:] == ["crm/2"]

    asyncio.run(run())


def test_too_many_that_wait_are_told_to_come_back():
    async def run():
        calls = Calls(FairBudget(10, "memory", max_waiting=2))
        for number in range(4):
            await calls.begin(f"crm/{number}", 10)
        error = await calls.outcome("crm/3")
        assert isinstance(error, LimitExceeded)
        assert error.retry_after_s >= 0.5
        assert len(calls.budget._waiting) == 2
        await calls.begin("web/1", 10)
        await calls.end("crm/0")
        assert calls.admitted[-1] == "web/1"

    asyncio.run(run())


def test_all_is_given_back_however_a_call_ends():
    async def run():
        calls = Calls(FairBudget(10, "memory"))
        await calls.begin("crm/1", 8)
        await calls.begin("crm/2", 8)
        await calls.begin("crm/3", 8, patience_s=0.01)
        assert isinstance(await calls.outcome("crm/3"), LimitExceeded)
        await calls.cancel("crm/2")
        assert len(calls.budget._waiting) == 0
        await calls.cancel("crm/1")
        assert calls.budget.free == 10
        with pytest.raises(ZeroDivisionError):
            async with calls.budget.holding("crm", 10, time.monotonic() + LONG_S):
                raise ZeroDivisionError
        assert calls.budget.free == 10

    asyncio.run(run())


def test_a_call_that_is_cancelled_as_its_turn_comes_keeps_nothing():
    async def run():
        calls = Calls(FairBudget(10, "memory"))
        await calls.begin("crm/1", 8)
        await calls.begin("crm/2", 8)
        calls._ends["crm/1"].set()
        await asyncio.sleep(0)  # crm/1 gives back, and the turn of crm/2 is told it
        assert len(calls.budget._waiting) == 0
        assert calls.admitted == ["crm/1"]
        await calls.cancel("crm/2")
        assert calls.budget.free == 10

    asyncio.run(run())


def test_what_is_shrunk_goes_to_the_next():
    async def run():
        budget = FairBudget(10, "memory")
        calls = Calls(budget)
        async with budget.holding("crm", 10, time.monotonic() + LONG_S) as held:
            await calls.begin("web/1", 6)
            assert calls.admitted == []
            held.shrink(4)
            held.shrink(7)  # what is more changes nothing
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert calls.admitted == ["web/1"]
            assert budget.free == 0
        assert budget.free == 4

    asyncio.run(run())


@given(
    wanted=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 10), st.integers(0, 3)), max_size=15
    )
)
def test_everybody_gets_in_and_there_is_never_more_than_all(wanted):
    async def run():
        budget, admitted = FairBudget(10, "memory"), []

        async def call(caller, amount, rounds):
            async with budget.holding(caller, amount, time.monotonic() + LONG_S):
                assert budget.free >= 0
                admitted.append(caller)
                for _ in range(rounds):
                    await asyncio.sleep(0)

        async with AsyncExitStack():
            await asyncio.gather(*(call(*one) for one in wanted))
        assert len(admitted) == len(wanted)
        assert (budget.free, len(budget._waiting)) == (10, 0)

    asyncio.run(run())
