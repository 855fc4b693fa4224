"""One peer that is asked over a stream: whatever it does, the next question finds a way."""

import asyncio
import time

import grpc
import numpy as np
import pytest
import torch
from grpc.aio import AioRpcError, Metadata

from laser_vfl.client.serving import peer_client
from laser_vfl.client.serving.breaker import MAX_MISSED, MIN_PATIENCE_S
from laser_vfl.client.serving.peer_answers import Named, Subject
from laser_vfl.client.serving.peer_client import PeerClient
from laser_vfl.security.credentials import Credentials
from laser_vfl.v1 import peer_pb2 as pb

SUBJECT = Subject("run-1", 2, torch.float32, 1e6)
GOOD = pb.RepresentResponse(places=b"\0\0\0\0")
GOOD.representations.CopyFrom(
    pb.RepresentResponse().representations.__class__(dtype=1, shape=[1, 2], data=b"\0" * 8)
)
TWO = pb.RepresentResponse(places=bytes([0, 0, 0, 0, 1, 0, 0, 0]))
TWO.representations.CopyFrom(GOOD.representations.__class__(dtype=1, shape=[2, 2], data=bytes(16)))


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
            peer_client,
            "open_represent",
            lambda channel: Call(answers.pop(0) if len(answers) > 1 else answers[0]),
        )
        asker = PeerClient(
            "shop", "127.0.0.1:1", sender="bank", credentials=Credentials(), options=[]
        )
        try:
            async with asyncio.timeout(10):
                await scenario(asker)
        finally:
            await asker.close()

    asyncio.run(run())


def ask(asker):
    return asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 5).answer


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
        question = asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 0.06)
        await asyncio.sleep(0.06)
        assert asker.give_up(question).problem
        assert asker.breaker.is_open
        assert (await question.answer).problem
        assert not asker._unanswered

    play(monkeypatch, [asyncio.Event()], scenario)


def test_who_is_more_patient_still_gets_an_answer(monkeypatch):
    event = asyncio.Event()

    async def scenario(asker):
        patient = asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 5)
        await asyncio.sleep(0.06)
        assert asker.give_up(patient).problem
        assert asker.breaker.is_open
        assert not patient.answer.done()

    play(monkeypatch, [event], scenario)


def test_nobody_is_asked_about_nobody(monkeypatch):
    async def scenario(asker):
        named = Named(b"", "alignment-1", np.empty(0, np.uint32))
        answer = await asker.ask(SUBJECT, named, time.monotonic() + 5).answer
        assert not answer.problem
        assert len(answer.places) == 0
        assert asker._stream is None

    play(monkeypatch, [asyncio.Event()], scenario)


def test_a_question_that_several_callers_could_not_wait_for_counts_once(monkeypatch):
    async def scenario(asker):
        asker.breaker.answered(5.0)
        for num_missed in range(1, MAX_MISSED + 1):
            question = asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 5)
            await asyncio.sleep(MIN_PATIENCE_S + 0.01)
            for _ in range(MAX_MISSED):
                assert asker.give_up(question).problem
            assert asker.breaker.is_open == (num_missed == MAX_MISSED)

    play(monkeypatch, [asyncio.Event()], scenario)


def test_one_slow_answer_to_questions_that_went_together_counts_once(monkeypatch):
    async def scenario(asker):
        silent = Silent()
        streams = iter([Refusing(LIMITED), silent])
        monkeypatch.setattr(peer_client, "open_represent", lambda channel: next(streams))
        asker.breaker.answered(5.0)
        questions = [
            asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 5) for _ in range(MAX_MISSED)
        ]
        await silent.is_asked.wait()
        [sent] = asker._unanswered
        assert sent.questions == questions
        await asyncio.sleep(MIN_PATIENCE_S + 0.01)
        for question in questions:
            assert asker.give_up(question).problem
        assert not asker.breaker.is_open

    play(monkeypatch, [TWO], scenario)


class Refusing(Call):
    """A stream that ends with a status as soon as it is asked anything."""

    async def read(self):
        await self._asked.get()
        raise self._answer


class Silent(Call):
    """A stream on which no answer comes."""

    def __init__(self):
        super().__init__(asyncio.Event())
        self.is_asked = asyncio.Event()

    async def write(self, request):
        await super().write(request)
        self.is_asked.set()


LIMITED = AioRpcError(
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    Metadata(),
    Metadata(("laser-vfl-error", "LimitExceeded"), ("laser-vfl-retry-after-ms", "80")),
    "bank asks shop too much",
)
WRITE_FAILED = AioRpcError(
    grpc.StatusCode.INTERNAL, Metadata(), Metadata(), "Internal error from Core"
)


@pytest.mark.parametrize("ends", [[LIMITED], [WRITE_FAILED, LIMITED], [WRITE_FAILED]])
def test_what_was_asked_too_fast_is_asked_again_together_when_it_may(monkeypatch, ends):
    async def scenario(asker):
        streams = iter([*map(Refusing, ends), Call(TWO)])
        monkeypatch.setattr(peer_client, "open_represent", lambda channel: next(streams))
        first, second = ask(asker), ask(asker)
        assert not (await first).problem
        assert not (await second).problem
        assert not asker.breaker.is_open
        assert asker.num_limited == ends.count(LIMITED)

    play(monkeypatch, [TWO], scenario)


def test_a_stream_that_fails_in_the_same_way_again_is_lost(monkeypatch):
    async def scenario(asker):
        monkeypatch.setattr(peer_client, "open_represent", lambda channel: Refusing(WRITE_FAILED))
        answer = await ask(asker)
        assert answer.problem
        assert not answer.is_up
        assert asker.breaker.is_open

    play(monkeypatch, [TWO], scenario)


def test_who_cannot_wait_until_it_may_ask_again_is_told_why(monkeypatch):
    async def scenario(asker):
        monkeypatch.setattr(peer_client, "open_represent", lambda channel: Refusing(LIMITED))
        question = asker.ask(SUBJECT, Named(b"\1" * 32), time.monotonic() + 0.05)
        answer = await question.answer
        assert answer.problem == "bank asks shop too much"
        assert answer.is_up
        assert not asker.breaker.is_open

    play(monkeypatch, [TWO], scenario)
