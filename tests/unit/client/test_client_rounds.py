"""Rounds: requests travel together, and each comes home with its own rows when it must."""

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laser_vfl.client.answers import Answer, Named, Subject, nothing
from laser_vfl.client.rounds import Rounds
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.method import Method
from laser_vfl.core.place import Place
from laser_vfl.core.settings import TrainingSettings

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
        return future

    def say(self, places, rows):
        return Answer(places, rows)

    def gave_up(self, waited_s):
        self.num_gave_up += 1


class Refusing(Peer):
    """Answers, but has nothing."""

    def say(self, places, rows):
        return nothing("it has other plans")


def edition():
    settings = TrainingSettings(representation_dim=2, batch_size=1, epochs=1)
    model = SimpleNamespace(
        roster=ROSTER,
        addresses=dict.fromkeys(ROSTER, "x:1"),
        method=Method(),
        place=Place(0, len(ROSTER), 1, settings),
    )
    subject = Subject("run-1", 2, torch.float32, 1e6)
    return SimpleNamespace(
        model=model,
        subject=subject,
        asked=ROSTER[1:],
        max_rows=100,
        representation=Forward(),
        head=Forward(),
        named_to=lambda peers, digests: dict.fromkeys(peers, Named(digests.tobytes())),
    )


async def travel(rounds, used, *numbers, within_s=5.0):
    digests = np.zeros((len(numbers), DIGEST_BYTES), np.uint8)
    digests[:, 0] = numbers
    inputs = torch.tensor([[float(number)] * 2 for number in numbers])
    return await rounds.travel(used, digests, inputs, time.monotonic() + within_s)


def expected(number):
    """The average of the own number and, where it is even, of the peer's."""
    return float(number + 5 if number % 2 == 0 else number)


def check(outcome, *numbers):
    assert outcome.outputs_no[:, 0].tolist() == [expected(number) for number in numbers]
    assert outcome.blocks.tolist() == [3 if number % 2 == 0 else 1 for number in numbers]
    even = [place for place, number in enumerate(numbers) if number % 2 == 0]
    assert outcome.answers["shop"].places.tolist() == even


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_each_gets_the_rows_that_it_asked_for(together):
    peer, used = Peer(), edition()
    requests = [(1, 2), (4,), (3,), (6, 8, 5), (2, 2)]

    async def play():
        rounds = Rounds({"shop": peer}, together=together)
        return await asyncio.gather(*(travel(rounds, used, *numbers) for numbers in requests))

    for outcome, numbers in zip(asyncio.run(play()), requests, strict=True):
        check(outcome, *numbers)
    sizes = [9] if together else [2, 1, 1, 3, 2]
    assert peer.num_asked == used.representation.sizes == used.head.sizes == sizes


def test_who_is_in_a_hurry_goes_first_and_the_others_wait():
    peer, used = Peer(delay_s=0.08), edition()

    async def play():
        rounds = Rounds({"shop": peer}, together=True)
        return await asyncio.gather(
            travel(rounds, used, 2, 3),
            travel(rounds, used, 4, within_s=0.02),
            travel(rounds, used, 7, 6),
        )

    first, hasty, last = asyncio.run(play())
    assert peer.num_asked == [5]
    check(first, 2, 3)
    check(last, 7, 6)
    assert hasty.answers == {"shop": None}
    assert hasty.outputs_no[:, 0].tolist() == [4.0]
    assert hasty.blocks.tolist() == [1]
    assert peer.num_gave_up == 1


def test_models_of_two_runs_do_not_travel_together():
    peer, old, new = Peer(), edition(), edition()

    async def play():
        rounds = Rounds({"shop": peer}, together=True)
        numbers = range(6)
        used = [old, old, new, new, old, new]
        return await asyncio.gather(
            *(travel(rounds, u, n) for u, n in zip(used, numbers, strict=True))
        )

    for number, outcome in enumerate(asyncio.run(play())):
        check(outcome, number)
    assert sum(old.head.sizes) == sum(new.head.sizes) == 3


def test_a_peer_that_has_nothing_costs_its_block_only():
    used = edition()

    async def play():
        rounds = Rounds({"shop": Refusing()}, together=True)
        return await asyncio.gather(travel(rounds, used, 2), travel(rounds, used, 4))

    for number, outcome in zip((2, 4), asyncio.run(play()), strict=True):
        assert outcome.outputs_no[:, 0].tolist() == [float(number)]
        assert outcome.answers["shop"].problem == "it has other plans"


def test_without_peers_the_own_block_is_enough():
    used = edition()
    outcome = asyncio.run(travel(Rounds({}, together=True), used, 2, 3))
    assert outcome.outputs_no[:, 0].tolist() == [2.0, 3.0]
    assert outcome.blocks.tolist() == [1, 1]
    assert outcome.answers == {}


def test_a_model_that_fails_fails_those_who_travel_with_it():
    used = edition()

    def fail(rows):
        raise ValueError("no")

    used.head.submit = fail

    async def play():
        rounds = Rounds({"shop": Peer()}, together=True)
        results = await asyncio.gather(
            travel(rounds, used, 2), travel(rounds, used, 3), return_exceptions=True
        )
        assert [type(result) for result in results] == [ValueError, ValueError]
        check(await travel(rounds, edition(), 4), 4)

    asyncio.run(play())
