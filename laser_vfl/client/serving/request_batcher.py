"""Batches requests that come at the same time: one forward, and one question to each peer."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.peer_answers import Answer, Named
from laser_vfl.client.serving.peer_client import PeerClient
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.core.errors import NotReady

MIN_HOLD_UP_S = 0.003
MAX_HOLD_UP_S = 0.02
"""For how long, at least and at most, a batch that is under way holds up the next one.

In between it is half of what a batch usually takes: then two are under way when there is much to
do, each with many requests, and a peer that is far away or hangs holds up nobody for long.
"""
QUIET, GATHERING = 0.5, 4.0
"""Where several requests went together, the next ones gather although no batch is under way: until
none has come for so many times what a batch usually takes, and at most for so many times that after
the start of the last batch. A batch costs all peers about as much with one request as with ten.
"""
SMOOTHING = 0.2


@dataclass(slots=True)
class PeerReply:
    """What became of the question of one request to a peer."""

    num_available: int
    """For how many rows the peer has given its block."""
    problem: str
    is_up: bool


@dataclass(slots=True)
class PeerReplies:
    """The head's outputs for the rows of a request, the blocks in each, and what peers said."""

    outputs_no: torch.Tensor
    blocks: npt.NDArray[np.uint64]
    by_peer: Mapping[str, PeerReply]
    missing: npt.NDArray[np.uint64] | None = None
    """The blocks that each row lacks because a peer that may hold it did not give its own.

    None when no row lacks one.
    """


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request under way: which rows it is about, and when it has to be answered."""

    model: ServedModel
    digests: Digests
    inputs: torch.Tensor | None
    """None when their representations have been computed."""
    give_up_at: float
    outcome: "asyncio.Future[PeerReplies]"
    computed: Callable[[], None]
    """Is told when `inputs` is None."""
    freed: asyncio.Event | None = None
    """Somebody waits for that who does not want the outcome any more."""

    def let_go(self) -> None:
        """Keep the inputs no longer: nothing computes with them."""
        if self.inputs is not None:
            self.inputs = None
            self.computed()
            if self.freed is not None:
                self.freed.set()


class RequestBatcher:
    """Starts a batch at once when none is under way; otherwise requests gather for the next."""

    def __init__(self, peers: Mapping[str, PeerClient], *, together: bool) -> None:
        self._peers = peers
        self._together = together
        self._waiting: list[PendingRequest] = []
        self._batches: dict[asyncio.Task[None], Sequence[PendingRequest]] = {}
        self._started_at = 0.0
        self._had_several = False
        """Whether several requests went with the last batch."""
        self._usual_s = 0.0
        self._last_came_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def submit(
        self,
        model: ServedModel,
        digests: Digests,
        inputs: torch.Tensor,
        give_up_at: float,
        computed: Callable[[], None] = lambda: None,
    ) -> PeerReplies:
        """Go with the next batch; return what it finds for these rows.

        `computed` is told when the inputs are not needed any more, as long as peers may take. A
        caller that is cancelled ends only then.
        """
        if self._is_closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[PeerReplies] = loop.create_future()
        request = PendingRequest(model, digests, inputs, give_up_at, outcome, computed)
        del inputs
        self._waiting.append(request)
        self._last_came_at = time.monotonic()
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        try:
            return await outcome
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
            elif request.inputs is not None:
                request.freed = asyncio.Event()
                await request.freed.wait()
            raise

    def _next_at(self) -> float:
        """Return when the next batch may start, of those that wait now."""
        if self._together and self._batches:
            hold_up_s = max(self._usual_s / 2, MIN_HOLD_UP_S)
        elif self._together and self._had_several:
            hold_up_s = GATHERING * self._usual_s
        else:
            return 0.0
        next_at = self._started_at + min(hold_up_s, MAX_HOLD_UP_S)
        if not self._batches:
            # Nobody who is in a hurry waits for others to come.
            in_time = min(one.give_up_at for one in self._waiting) - self._usual_s
            next_at = min(next_at, in_time, self._last_came_at + QUIET * self._usual_s)
        return next_at

    async def close(self) -> None:
        """Start no more batches, end those under way, and refuse everybody who waits."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        batches = dict(self._batches)
        for task in batches:
            task.cancel()
        await asyncio.gather(*batches, return_exceptions=True)
        for request in itertools.chain(*batches.values(), self._waiting):
            if not request.outcome.done():
                request.outcome.set_exception(_closed())
        self._waiting.clear()

    def _start(self) -> None:
        """Start as many batches as may start now; be back when the next one may."""
        self._timer = None
        while self._waiting and not self._is_closed:
            now = time.monotonic()
            hold_up_s = self._next_at() - now
            if hold_up_s > 0:
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(hold_up_s, self._start)
                return
            self._started_at = now
            requests = self._take()
            self._had_several = len(requests) > 1
            task = asyncio.create_task(self._run(requests))
            self._batches[task] = requests
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._batches[task]
        if self._timer is not None:
            self._timer.cancel()
        self._start()

    def _take(self) -> list[PendingRequest]:
        """Take those who ask about the same model, as many as fit into one question."""
        model = self._waiting[0].model
        num_rows, count = 0, 0
        for request in self._waiting:
            num_rows += len(request.digests)
            fits = request.model is model and num_rows <= model.max_rows
            if count and not (self._together and fits):
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _run(self, requests: Sequence[PendingRequest]) -> None:
        started = time.monotonic()
        try:
            await _Batch(requests, self._peers).run()
            self._usual_s += SMOOTHING * (time.monotonic() - started - self._usual_s)
        except Exception as error:
            for request in requests:
                if not request.outcome.done():
                    request.outcome.set_exception(error)
        finally:
            for request in requests:
                request.let_go()


def _closed() -> NotReady:
    return NotReady("this client is stopping", hint="ask again when it is back")


class _Batch:
    """Asks all peers at once, computes meanwhile, and answers each request when it must go."""

    def __init__(self, requests: Sequence[PendingRequest], peers: Mapping[str, PeerClient]) -> None:
        self._requests = sorted(requests, key=lambda request: request.give_up_at)
        self._model = requests[0].model
        self._peers = {
            name: peers[name]
            for name in self._model.asked
            if name in peers and name in self._model.model.addresses
        }
        digests = [request.digests for request in self._requests]
        self._digests = np.concatenate(digests) if len(digests) > 1 else digests[0]
        self._stops = list(itertools.accumulate(len(rows) for rows in digests))
        self._named: Mapping[str, Named] = {}

    async def run(self) -> None:
        last = self._requests[-1].give_up_at
        subject = self._model.subject
        self._named = self._model.named_to(self._peers, self._digests)
        questions = {
            name: peer.ask(subject, self._named[name], last) for name, peer in self._peers.items()
        }
        await asyncio.sleep(0)  # so that the questions are on their way before the computing starts
        own_nd = (await self._model.representation.submit(self._inputs())).numpy()
        for request in self._requests:
            request.let_go()
        first = 0
        while first < len(self._requests):
            pending = [q.answer for q in questions.values() if not q.answer.done()]
            patience_s = self._requests[first].give_up_at - time.monotonic()
            if pending and patience_s > 0:
                await asyncio.wait(pending, timeout=patience_s)
                continue
            answers = {name: self._peers[name].give_up(q) for name, q in questions.items()}
            stop = first + 1 if pending else len(self._requests)
            await self._answer(first, stop, own_nd, answers)
            first = stop

    def _inputs(self) -> torch.Tensor:
        inputs = [request.inputs for request in self._requests if request.inputs is not None]
        return torch.cat(inputs) if len(inputs) > 1 else inputs[0]

    async def _answer(
        self,
        first: int,
        stop: int,
        own_nd: npt.NDArray[np.float32],
        answers: Mapping[str, Answer],
    ) -> None:
        """Predict for some of the requests with what has come so far."""
        starts = [0, *self._stops]
        begin, end = starts[first], starts[stop]
        parts = answers
        if stop - first < len(self._requests):
            parts = {name: _between(answer, begin, end) for name, answer in answers.items()}
        fused_nd, blocks = _fuse(self._model, own_nd[begin:end], parts)
        missing = self._missing(answers)
        assert self._model.head is not None
        outputs_no = await self._model.head.submit(fused_nd)
        bounds = [start - begin for start in starts[first : stop + 1]]
        nums = {name: _nums_between(bounds, part.places) for name, part in parts.items()}
        for index in range(first, stop):
            outcome = self._requests[index].outcome
            if outcome.done():
                continue
            here, there = starts[index], starts[index + 1]
            by_peer = {
                name: PeerReply(nums[name][index - first], part.problem, part.is_up)
                for name, part in parts.items()
            }
            outcome.set_result(
                PeerReplies(
                    outputs_no[here - begin : there - begin],
                    blocks[here - begin : there - begin],
                    by_peer,
                    None if missing is None else missing[here:there],
                )
            )

    def _missing(self, answers: Mapping[str, Answer]) -> npt.NDArray[np.uint64] | None:
        """Return the blocks that each row of the batch lacks because a peer has a problem."""
        missing = None
        for name, answer in answers.items():
            if answer.problem:
                if missing is None:
                    missing = np.zeros(self._stops[-1], dtype=np.uint64)
                at = self._named[name].at
                rows: slice | npt.NDArray[np.uint32] = slice(None) if at is None else at
                missing[rows] |= np.uint64(self._model.mask(name))
        return missing


def _nums_between(bounds: Sequence[int], places: npt.NDArray[np.uint32]) -> list[int]:
    """Return how many of the places are between each bound and the next; all are in between."""
    if len(bounds) == 2:
        return [len(places)]
    found: list[int] = np.diff(np.searchsorted(places, bounds)).tolist()
    return found


def _between(answer: Answer, begin: int, end: int) -> Answer:
    """Return the part of an answer that is about some of the rows."""
    if answer.problem:
        return answer
    first, last = np.searchsorted(answer.places, (begin, end)).tolist()
    return Answer(answer.places[first:last] - np.uint32(begin), answer.representations[first:last])


def _fuse(
    model: ServedModel, own_nd: npt.NDArray[np.float32], answers: Mapping[str, Answer]
) -> tuple[torch.Tensor, npt.NDArray[np.uint64]]:
    """Put the representations of each row together, and say whose they are."""
    published = model.model
    given = {}
    for name, answer in answers.items():
        if not len(answer.places):
            continue
        # A slice where an answer has all rows: much less work than picking them one by one.
        everywhere = len(answer.places) == len(own_nd)
        places: slice | npt.NDArray[np.uint32] = slice(None) if everywhere else answer.places
        given[published.roster.index(name)] = (places, answer.representations)
    fused_nd, blocks = published.method.prediction.fuse(own_nd, given, published.context)
    return torch.from_numpy(fused_nd), blocks
