"""Requests and the memory for them: held while a row is in use, and given back however it ends."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from laser_vfl.client.serving.answering import SamplePredictor
from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.limits.request_cost import RowCost
from laser_vfl.core.errors import DataError, LimitExceeded
from laser_vfl.v1 import prediction_pb2 as pb

TOTAL = 1_000_000
CONTENT = pb.PredictRequest(ids=["a"] * 100).SerializeToString()
PATIENCE_S = 30.0


class Resolver:
    """Takes its time, in the thread."""

    def __init__(self):
        self.is_busy, self.may_end = threading.Event(), threading.Event()

    def is_quick(self, request):
        """Is never so."""
        return False

    def resolve(self, model, request, caller):
        """Fail when told to end."""
        self.is_busy.set()
        assert self.may_end.wait(PATIENCE_S)
        raise DataError("nobody is known here")


@pytest.fixture
def resolver():
    return Resolver()


@pytest.fixture
def predictor(resolver):
    model = SimpleNamespace(head=object(), max_rows=10_000, row_cost=RowCost(100, 10))
    with ThreadPoolExecutor(1) as executor:
        registry = SimpleNamespace(ready=lambda: model, executor=executor)
        serving = SimpleNamespace(deadline_s=5.0, batch_requests=True)
        config = SimpleNamespace(name="bank", serving=serving)
        budget = FairBudget(TOTAL, "memory")
        predictor = SamplePredictor(config, registry, resolver, {}, None, budget)
        yield SimpleNamespace(ask=predictor.answered, budget=budget)
        resolver.may_end.set()


async def ask(predictor, content=CONTENT, time_left_s=PATIENCE_S):
    async with predictor.ask(content, time_left_s):
        pass


def test_memory_is_held_until_the_thread_is_done_although_the_caller_hangs_up(predictor, resolver):
    async def run():
        call = asyncio.create_task(ask(predictor))
        assert await asyncio.to_thread(resolver.is_busy.wait, PATIENCE_S)
        held = TOTAL - predictor.budget.free
        assert held > 100 * 2 * 4 * 100
        call.cancel()
        done, _ = await asyncio.wait({call}, timeout=0.1)
        assert not done
        assert TOTAL - predictor.budget.free == held
        resolver.may_end.set()
        await asyncio.wait({call}, timeout=PATIENCE_S)
        assert call.cancelled()
        assert predictor.budget.free == TOTAL

    asyncio.run(run())


def test_memory_is_given_back_after_an_error(predictor, resolver):
    resolver.may_end.set()
    with pytest.raises(DataError, match="nobody is known"):
        asyncio.run(ask(predictor))
    assert predictor.budget.free == TOTAL


def test_a_request_that_is_larger_than_all_is_told_how_to_be_split(predictor):
    content = pb.PredictRequest(ids=["a"] * 5_000).SerializeToString()
    with pytest.raises(DataError, match=r"ask for at most [1-9][0-9]* samples") as refused:
        asyncio.run(ask(predictor, content))
    assert predictor.budget.free == TOTAL
    num = int(refused.value.hint.split()[4])
    assert 100 < num < 1_000


def test_who_cannot_wait_any_longer_is_told_when_to_come_back(predictor, resolver):
    content = pb.PredictRequest(ids=["a"] * 400).SerializeToString()

    async def run():
        call = asyncio.create_task(ask(predictor, content))
        assert await asyncio.to_thread(resolver.is_busy.wait, PATIENCE_S)
        with pytest.raises(LimitExceeded) as refused:
            await ask(predictor, content, time_left_s=0.05)
        assert refused.value.retry_after_s >= 0.5
        resolver.may_end.set()
        with pytest.raises(DataError):
            await call
        assert predictor.budget.free == TOTAL

    asyncio.run(run())
