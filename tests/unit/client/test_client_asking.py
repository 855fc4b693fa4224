"""One peer that is asked over a stream: whatever it does, the next question finds a way."""

import asyncio
import time

import numpy as np
import pytest
import torch

from laser_vfl.client import asking
from laser_vfl.client.answers import Named, Subject
from laser_vfl.client.asking import Asker
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.credentials import Credentials

SUBJECT = Subject("run-1", 2, torch.float32, 1e6)
GOOD = pb.RepresentResponse(places=b"\0\0\0\0")
GOOD.representations.CopyFrom(
    pb.RepresentResponse().representations.__class__(dtype=1, shape=[1, 2], data=b"\0" * 8)
)


class Call:
    """A stream that answers every question with the same thing."""

    def __init__(self, answer):
        self._answer = answer
        self._asked = asyncio.Queue()

    async def write(self, request):
        self._asked.put_nowait(request)

    async def read(self):
        await self._asked.get()
        if isinstance(self._answer, asyncio.Event):
            await self._answer.wait()
        return self._answer

    def cancel(self):
        pass


def play(monkeypatch, answers, scenario):
    """Run a scenario with an asker whose streams answer as told, the last one for ever."""

    async def run():
        monkeypatch.setattr(
            asking,
            "open_represent",
            lambda channel: Call(answers.pop(0) if len(answers) > 1 else answers[0]),
        )
        asker = Asker("shop", "127.0.0.1:1", sender="bank", credentials=Credentials(), options=[])
        try:
            async with asyncio.timeout(10):
                await scenario(asker)
        finally:
            await asker.close()

    asyncio.run(run())


def ask(asker):
    return asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 5)


@pytest.mark.parametrize("bad", [None, pb.RepresentResponse(places=b"\0"), 7])
def test_an_answer_that_cannot_be_read_is_no_block_and_the_next_one_counts(monkeypatch, bad):
    async def scenario(asker):
        assert (await ask(asker)).problem
        assert asker.breaker.is_open
        asker.probe(at_once=True)
        await asker._probing
        answer = await ask(asker)
        assert not answer.problem
        assert answer.places.tolist() == [0]

    play(monkeypatch, [bad, GOOD], scenario)


def test_nothing_is_kept_of_questions_that_nobody_waits_for(monkeypatch):
    async def scenario(asker):
        question = asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic())
        await asyncio.sleep(0)
        asker.gave_up(1.0)
        assert asker.breaker.is_open
        assert (await question).problem
        assert not asker._unanswered

    play(monkeypatch, [asyncio.Event()], scenario)


def test_who_is_more_patient_still_gets_an_answer(monkeypatch):
    event = asyncio.Event()

    async def scenario(asker):
        patient = ask(asker)
        await asyncio.sleep(0)
        asker.gave_up(1.0)
        assert asker.breaker.is_open
        assert not patient.done()

    play(monkeypatch, [event], scenario)


def test_nobody_is_asked_about_nobody(monkeypatch):
    async def scenario(asker):
        named = Named(b"", "alignment-1", np.empty(0, np.uint32))
        answer = await asker.ask(SUBJECT, named, time.monotonic() + 5)
        assert not answer.problem
        assert len(answer.places) == 0
        assert asker._stream is None

    play(monkeypatch, [asyncio.Event()], scenario)
