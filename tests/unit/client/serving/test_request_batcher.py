"""Request batches: requests submit together, and each comes home with its own rows when it must."""

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laser_vfl.client.serving.peer_answers import Answer, Named, Subject, nothing
from laser_vfl.client.serving.request_batcher import RequestBatcher
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import NotReady
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.training_settings import TrainingSettings

ROSTER = ("bank", "shop")


class Forward:
    """A model that is there at once, and counts."""

    def __init__(self):
        self.sizes = []

    def submit(self, rows):
        self.sizes.append(len(rows))
        future = asyncio.get_running_loop().create_future()
        future.set_result(rows.clone())
        return future


class Peer:
    """Holds samples with an even first byte; its representation is that byte, and ten more."""

    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s
        self.num_asked = []
        self.num_gave_up = 0

    def ask(self, subject, named, give_up_at):
        first_bytes = np.frombuffer(named.names, np.uint8).reshape(-1, DIGEST_BYTES)[:, 0]
        self.num_asked.append(len(first_bytes))
        places = np.flatnonzero(first_bytes % 2 == 0).astype(np.uint32)
        rows = np.repeat(first_bytes[places, None].astype(np.float32) + 10, 2, axis=1)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(
            self.delay_s, lambda: future.done() or future.set_result(self.say(places, rows))
        )
        return SimpleNamespace(answer=future)

    def say(self, places, rows):
        return Answer(places, rows)

    def give_up(self, question):
        if question.answer.done():
            return question.answer.result()
        self.num_gave_up += 1
        return nothing("no answer in time")


class Refusing(Peer):
    """Answers, but has nothing."""

    def say(self, places, rows):
        return nothing("it has other plans")


def served_model():
    settings = TrainingSettings(representation_dim=2, batch_size=1, epochs=1)
    model = SimpleNamespace(
        roster=ROSTER,
        addresses=dict.fromkeys(ROSTER, "x:1"),
        method=Laser(),
        context=FederationContext(0, len(ROSTER), 1, settings),
    )
    subject = Subject("run-1", 2, torch.float32, 1e6)
    return SimpleNamespace(
        model=model,
        subject=subject,
        mask=lambda client: 1 << ROSTER.index(client),
        asked=ROSTER[1:],
        max_rows=100,
        representation=Forward(),
        head=Forward(),
        named_to=lambda peers, digests: dict.fromkeys(peers, Named(digests.tobytes())),
    )


async def submit(batcher, used, *numbers, within_s=5.0):
    digests = np.zeros((len(numbers), DIGEST_BYTES), np.uint8)
    digests[:, 0] = numbers
    inputs = torch.tensor([[float(number)] * 2 for number in numbers])
    return await batcher.submit(used, digests, inputs, time.monotonic() + within_s)


def expected(number):
    """The average of the own number and, where it is even, of the peer's."""
    return float(number + 5 if number % 2 == 0 else number)


def check(outcome, *numbers):
    assert outcome.outputs_no[:, 0].tolist() == [expected(number) for number in numbers]
    assert outcome.blocks.tolist() == [3 if number % 2 == 0 else 1 for number in numbers]
    num_even = sum(number % 2 == 0 for number in numbers)
    assert outcome.by_peer["shop"].num_available == num_even


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_each_gets_the_rows_that_it_asked_for(together):
    peer, used = Peer(), served_model()
    requests = [(1, 2), (4,), (3,), (6, 8, 5), (2, 2)]

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=together)
        return await asyncio.gather(*(submit(batcher, used, *numbers) for numbers in requests))

    for outcome, numbers in zip(asyncio.run(play()), requests, strict=True):
        check(outcome, *numbers)
    sizes = [9] if together else [2, 1, 1, 3, 2]
    assert peer.num_asked == used.representation.sizes == used.head.sizes == sizes


def test_who_is_in_a_hurry_goes_first_and_the_others_wait():
    peer, used = Peer(delay_s=0.4), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        return await asyncio.gather(
            submit(batcher, used, 2, 3),
            submit(batcher, used, 4, within_s=0.1),
            submit(batcher, used, 7, 6),
        )

    first, hasty, last = asyncio.run(play())
    assert peer.num_asked == [5]
    check(first, 2, 3)
    check(last, 7, 6)
    assert hasty.by_peer["shop"].problem == "no answer in time"
    assert hasty.missing.tolist() == [2]
    assert first.missing is None
    assert hasty.outputs_no[:, 0].tolist() == [4.0]
    assert hasty.blocks.tolist() == [1]
    assert peer.num_gave_up == 1


def test_models_of_two_runs_do_not_travel_together():
    peer, old, new = Peer(), served_model(), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        numbers = range(6)
        used = [old, old, new, new, old, new]
        return await asyncio.gather(
            *(submit(batcher, u, n) for u, n in zip(used, numbers, strict=True))
        )

    for number, outcome in enumerate(asyncio.run(play())):
        check(outcome, number)
    assert sum(old.head.sizes) == sum(new.head.sizes) == 3


def test_a_peer_that_has_nothing_costs_its_block_only():
    used = served_model()

    async def play():
        batcher = RequestBatcher({"shop": Refusing()}, together=True)
        return await asyncio.gather(submit(batcher, used, 2), submit(batcher, used, 4))

    for number, outcome in zip((2, 4), asyncio.run(play()), strict=True):
        assert outcome.outputs_no[:, 0].tolist() == [float(number)]
        assert outcome.by_peer["shop"].problem == "it has other plans"


def test_without_peers_the_own_block_is_enough():
    used = served_model()
    outcome = asyncio.run(submit(RequestBatcher({}, together=True), used, 2, 3))
    assert outcome.outputs_no[:, 0].tolist() == [2.0, 3.0]
    assert outcome.blocks.tolist() == [1, 1]
    assert outcome.by_peer == {}


def test_a_model_that_fails_fails_those_who_travel_with_it():
    used = served_model()

    def fail(rows):
        raise ValueError("no")

    used.head.submit = fail

    async def play():
        batcher = RequestBatcher({"shop": Peer()}, together=True)
        results = await asyncio.gather(
            submit(batcher, used, 2), submit(batcher, used, 3), return_exceptions=True
        )
        assert [type(result) for result in results] == [ValueError, ValueError]
        check(await submit(batcher, served_model(), 4), 4)

    asyncio.run(play())


def test_who_waits_when_the_client_stops_is_told_so_and_nothing_new_is_asked():
    peer, used = Peer(delay_s=30.0), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        asked = asyncio.create_task(submit(batcher, used, 2))
        while not peer.num_asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        waiting = asyncio.create_task(submit(batcher, used, 4))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await batcher.close()
            results = await asyncio.gather(
                asked, waiting, submit(batcher, used, 6), return_exceptions=True
            )
        assert [type(result) for result in results] == [NotReady] * 3

    asyncio.run(play())
    assert peer.num_asked == [1]


def test_after_a_batch_of_several_the_next_ones_gather():
    peer, used = Peer(delay_s=0.01), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        for _ in range(200):
            await asyncio.gather(submit(batcher, used, 2), submit(batcher, used, 4))
            peer.num_asked.clear()
            first = asyncio.create_task(submit(batcher, used, 6))
            for _ in range(4):  # in which a batch of one would have begun
                await asyncio.sleep(0)
            check(await submit(batcher, used, 8), 8)
            check(await first, 6)
            if peer.num_asked == [2]:  # the machine was quick enough
                return
        raise AssertionError("they never went together")

    asyncio.run(play())


def test_a_caller_alone_is_never_held_up():
    peer, used = Peer(), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        for number in range(10):
            request = asyncio.create_task(submit(batcher, used, number))
            for _ in range(4):
                await asyncio.sleep(0)
            assert len(peer.num_asked) == number + 1
            check(await request, number)

    asyncio.run(play())


def test_who_hangs_up_ends_when_nothing_computes_with_its_rows():
    used = served_model()
    let_go = []

    async def play():
        computing = asyncio.get_running_loop().create_future()
        used.representation.submit = lambda rows: computing
        batcher = RequestBatcher({}, together=True)
        digests = np.zeros((1, DIGEST_BYTES), np.uint8)
        until = time.monotonic() + 5.0
        call = asyncio.create_task(
            batcher.submit(used, digests, torch.ones(1, 2), until, lambda: let_go.append(1))
        )
        for _ in range(4):
            await asyncio.sleep(0)
        call.cancel()
        for _ in range(4):
            await asyncio.sleep(0)
        assert not call.done()
        assert not let_go
        computing.set_result(torch.ones(1, 2))
        await asyncio.wait({call}, timeout=5.0)
        assert call.cancelled()
        assert let_go == [1]

    asyncio.run(play())


def test_who_hangs_up_before_its_batch_ends_at_once():
    peer, used = Peer(delay_s=0.1), served_model()

    async def play():
        batcher = RequestBatcher({"shop": peer}, together=True)
        under_way = asyncio.create_task(submit(batcher, used, 2))
        for _ in range(4):
            await asyncio.sleep(0)
        batcher._started_at = time.monotonic() + 60.0  # the next one starts late, on any machine
        call = asyncio.create_task(submit(batcher, used, 4))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call}, timeout=5.0)
        assert call.cancelled()
        check(await under_way, 2)

    asyncio.run(play())
    assert peer.num_asked == [1]
