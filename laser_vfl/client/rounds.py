"""Requests that come at the same time go one way together: one forward, one question a peer."""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.answers import Answer
from laser_vfl.client.asking import Asker
from laser_vfl.client.digest_index import Digests
from laser_vfl.client.edition import Edition

MIN_HOLD_UP_S = 0.003
MAX_HOLD_UP_S = 0.02
"""For how long, at least and at most, a round that is under way holds up the next one.

In between it is half of what a round usually takes: then two are under way when there is much to
do, each with much company, and a peer that is far away or hangs holds up nobody for long.
"""
SMOOTHING = 0.2


@dataclass(frozen=True)
class Outcome:
    """The head's outputs for the rows of a request, the blocks in each, and what peers said."""

    outputs_no: torch.Tensor
    blocks: npt.NDArray[np.uint64]
    answers: Mapping[str, Answer | None]


@dataclass(frozen=True)
class Traveller:
    """A request on its way: which rows it is about, and when it has to arrive."""

    edition: Edition
    digests: Digests
    inputs: torch.Tensor
    give_up_at: float
    outcome: "asyncio.Future[Outcome]"


class Rounds:
    """Starts a round at once when none is under way; otherwise company gathers for the next."""

    def __init__(self, askers: Mapping[str, Asker], *, together: bool) -> None:
        self._askers = askers
        self._together = together
        self._waiting: list[Traveller] = []
        self._rounds: set[asyncio.Task[None]] = set()
        self._started_at = 0.0
        self._usual_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def travel(
        self, edition: Edition, digests: Digests, inputs: torch.Tensor, give_up_at: float
    ) -> Outcome:
        """Go with the next round; return what it brings home for these rows."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append(Traveller(edition, digests, inputs, give_up_at, outcome))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return await outcome

    @property
    def _hold_up_s(self) -> float:
        return min(max(self._usual_s / 2, MIN_HOLD_UP_S), MAX_HOLD_UP_S)

    async def close(self) -> None:
        """Start no more rounds."""
        for task in self._rounds:
            task.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)

    def _start(self) -> None:
        """Start as many rounds as may start now; be back when the next one may."""
        self._timer = None
        while self._waiting:
            now = time.monotonic()
            hold_up_s = self._started_at + self._hold_up_s - now
            if self._together and self._rounds and hold_up_s > 0:
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(hold_up_s, self._start)
                return
            self._started_at = now
            task = asyncio.create_task(self._travel(self._take()))
            self._rounds.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._rounds.discard(task)
        if self._timer is not None:
            self._timer.cancel()
        self._start()

    def _take(self) -> list[Traveller]:
        """Take those who ask about the same model, as many as fit into one question."""
        edition = self._waiting[0].edition
        num_rows, count = 0, 0
        for traveller in self._waiting:
            num_rows += len(traveller.inputs)
            fits = traveller.edition is edition and num_rows <= edition.max_rows
            if count and not (self._together and fits):
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _travel(self, travellers: Sequence[Traveller]) -> None:
        started = time.monotonic()
        try:
            await _Round(travellers, self._askers).run()
            self._usual_s += SMOOTHING * (time.monotonic() - started - self._usual_s)
        except Exception as error:
            for traveller in travellers:
                if not traveller.outcome.done():
                    traveller.outcome.set_exception(error)


class _Round:
    """One round: ask everybody, compute meanwhile, and let each go at the latest when it must."""

    def __init__(self, travellers: Sequence[Traveller], askers: Mapping[str, Asker]) -> None:
        self._travellers = sorted(travellers, key=lambda traveller: traveller.give_up_at)
        self._edition = travellers[0].edition
        self._asked_at = time.monotonic()
        self._askers = {
            name: askers[name]
            for name in self._edition.asked
            if name in askers and name in self._edition.model.addresses
        }
        digests = [traveller.digests for traveller in self._travellers]
        self._digests = np.concatenate(digests) if len(digests) > 1 else digests[0]
        inputs = [traveller.inputs for traveller in self._travellers]
        self._inputs = torch.cat(inputs) if len(inputs) > 1 else inputs[0]
        self._stops = list(itertools.accumulate(len(rows) for rows in inputs))

    async def run(self) -> None:
        last = self._travellers[-1].give_up_at
        subject = self._edition.subject
        named = self._edition.named_to(self._askers, self._digests)
        questions = {
            name: asker.ask(subject, named[name], last) for name, asker in self._askers.items()
        }
        await asyncio.sleep(0)  # so that the questions are on their way before the computing starts
        own_nd = (await self._edition.representation.submit(self._inputs)).numpy()
        first = 0
        while first < len(self._travellers):
            pending = [question for question in questions.values() if not question.done()]
            patience_s = self._travellers[first].give_up_at - time.monotonic()
            if pending and patience_s > 0:
                await asyncio.wait(pending, timeout=patience_s)
                continue
            answers = {
                name: question.result() if question.done() else None
                for name, question in questions.items()
            }
            stop = first + 1 if pending else len(self._travellers)
            for name in [name for name, answer in answers.items() if answer is None]:
                self._askers[name].gave_up(time.monotonic() - self._asked_at)
            await self._let_go(first, stop, own_nd, answers)
            first = stop

    async def _let_go(
        self,
        first: int,
        stop: int,
        own_nd: npt.NDArray[np.float32],
        answers: Mapping[str, Answer | None],
    ) -> None:
        """Predict for some of the travellers with what has come so far."""
        starts = [0, *self._stops]
        begin, end = starts[first], starts[stop]
        parts = answers
        if stop - first < len(self._travellers):
            parts = {name: _between(answer, begin, end) for name, answer in answers.items()}
        fused_nd, blocks = _fuse(self._edition, own_nd[begin:end], parts)
        assert self._edition.head is not None
        outputs_no = await self._edition.head.submit(fused_nd)
        for index in range(first, stop):
            here, there = starts[index] - begin, starts[index + 1] - begin
            outcome = self._travellers[index].outcome
            if not outcome.done():
                own = parts
                if stop - first > 1:
                    own = {name: _between(part, here, there) for name, part in parts.items()}
                outcome.set_result(Outcome(outputs_no[here:there], blocks[here:there], own))


def _between(answer: Answer | None, begin: int, end: int) -> Answer | None:
    """Return the part of an answer that is about some of the rows."""
    if answer is None or answer.problem:
        return answer
    first, last = np.searchsorted(answer.places, (begin, end)).tolist()
    return Answer(answer.places[first:last] - np.uint32(begin), answer.representations[first:last])


def _fuse(
    edition: Edition, own_nd: npt.NDArray[np.float32], answers: Mapping[str, Answer | None]
) -> tuple[torch.Tensor, npt.NDArray[np.uint64]]:
    """Put the representations of each row together, and say whose they are."""
    model = edition.model
    given = {}
    for name, answer in answers.items():
        if answer is None or not len(answer.places):
            continue
        # A slice where an answer has all rows: much less work than picking them one by one.
        everywhere = len(answer.places) == len(own_nd)
        places: slice | npt.NDArray[np.uint32] = slice(None) if everywhere else answer.places
        given[model.roster.index(name)] = (places, answer.representations)
    fused_nd, blocks = model.method.fuse(own_nd, given, model.place)
    return torch.from_numpy(fused_nd), blocks
