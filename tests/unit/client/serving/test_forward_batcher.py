"""Forwards: small ones at once, others in a thread and together with what comes meanwhile."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from laser_vfl.client.serving import forward_batcher as batching
from laser_vfl.client.serving.forward_batcher import ForwardBatcher


class Doubling:
    """A model that notes how many rows each forward has, and that can be held up."""

    def __init__(self):
        self.sizes = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, rows):
        self.gate.wait(5)
        self.sizes.append(len(rows))
        return rows * 2


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def threaded(monkeypatch):
    """No forward is small enough for the event loop."""
    monkeypatch.setattr(batching, "_inline_rows", lambda forward, row: 0)


@pytest.fixture(params=["on the loop", "in a thread"])
def either(request, monkeypatch):
    num = 100 if request.param == "on the loop" else 0
    monkeypatch.setattr(batching, "_inline_rows", lambda forward, row: num)


def make(model, executor, *, together=True):
    batcher = ForwardBatcher(model, torch.zeros(2), executor, together=together)
    model.sizes.clear()
    return batcher


def rows(*numbers):
    return torch.tensor([[float(number), 1.0] for number in numbers])


def test_what_comes_together_is_one_forward(executor, threaded):
    model = Doubling()

    async def play():
        batcher = make(model, executor)
        futures = [batcher.submit(rows(n, n + 1)) for n in range(5)]
        return await asyncio.gather(*futures)

    answers = asyncio.run(play())
    assert model.sizes == [10]
    for number, answer in enumerate(answers):
        assert torch.equal(answer, rows(number, number + 1) * 2)


def test_a_small_forward_is_done_at_once(executor, monkeypatch):
    monkeypatch.setattr(batching, "_inline_rows", lambda forward, row: 2)
    model = Doubling()

    async def play():
        batcher = make(model, executor)
        small, large = batcher.submit(rows(1, 2)), batcher.submit(rows(1, 2, 3))
        assert small.done()
        assert not large.done()
        return await large

    assert torch.equal(asyncio.run(play()), rows(1, 2, 3) * 2)
    assert model.sizes == [2, 3]


def test_what_comes_meanwhile_goes_into_the_next_forward(executor, threaded):
    model = Doubling()

    async def play():
        batcher = make(model, executor)
        model.gate.clear()
        first = batcher.submit(rows(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [batcher.submit(rows(n)) for n in range(1, 4)]
        model.gate.set()
        return await asyncio.gather(first, *later)

    answers = asyncio.run(play())
    assert model.sizes == [1, 3]
    assert [answer[0, 0].item() for answer in answers] == [0.0, 2.0, 4.0, 6.0]


def test_without_batching_each_request_is_a_forward(executor, either):
    model = Doubling()

    async def play():
        batcher = make(model, executor, together=False)
        return await asyncio.gather(*(batcher.submit(rows(n)) for n in range(3)))

    asyncio.run(play())
    assert model.sizes == [1, 1, 1]


def test_a_batch_has_an_end(executor, threaded, monkeypatch):
    monkeypatch.setattr(batching, "MAX_BATCH_ROWS", 4)
    model = Doubling()

    async def play():
        batcher = make(model, executor)
        sizes = (3, 1, 2, 9, 1)
        return await asyncio.gather(*(batcher.submit(rows(*range(n))) for n in sizes))

    answers = asyncio.run(play())
    assert model.sizes == [4, 2, 9, 1]
    assert [len(answer) for answer in answers] == [3, 1, 2, 9, 1]


def test_a_forward_that_fails_fails_its_requests_and_no_others(executor, either):
    def forward(given):
        if given[0, 0] < 0:
            raise ValueError("no")
        return given

    async def play():
        batcher = ForwardBatcher(forward, torch.zeros(2), executor, together=True)
        with pytest.raises(ValueError, match="no"):
            await batcher.submit(rows(-1))
        assert torch.equal(await batcher.submit(rows(3)), rows(3))

    asyncio.run(play())


def test_a_request_that_was_given_up_disturbs_nobody(executor, threaded):
    model = Doubling()

    async def play():
        batcher = make(model, executor)
        given_up, waited_for = batcher.submit(rows(1)), batcher.submit(rows(2))
        given_up.cancel()
        return await waited_for

    assert torch.equal(asyncio.run(play()), rows(2) * 2)
