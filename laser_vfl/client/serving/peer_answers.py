"""Questions to peers, and their answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError, quoted
from laser_vfl.core.privacy.bounds import Bounds
from laser_vfl.transport.protocol import MAX_IDS
from laser_vfl.transport.tensor_codec import TensorSpec, decode_array
from laser_vfl.v1 import peer_pb2 as pb


@dataclass(frozen=True)
class Subject:
    """The model that a question is about: its run, and what its representations look like."""

    run: str
    width: int
    dtype: torch.dtype
    max_norm: float
    max_rows: int = MAX_IDS
    """How many samples fit into one question and its answer."""

    @cached_property
    def bounds(self) -> Bounds:
        """What may be in an answer."""
        return Bounds(self.max_norm, self.dtype)


@dataclass(slots=True)
class Answer:
    """Representations of the samples at `places` of the question; or why there are none."""

    places: npt.NDArray[np.uint32]
    representations: npt.NDArray[np.float32]
    problem: str = ""
    """Why the block is missing; empty when the peer answered."""
    is_up: bool = True
    """Whether the peer is asked at the moment; with a problem, it was too slow or limits us."""


@dataclass(frozen=True)
class Named:
    """Samples as one peer knows them: by digest, or by group and place in an alignment.

    In an alignment only those are named that the peer holds; `at` says which of the samples.
    """

    names: bytes
    alignment: str = ""
    at: npt.NDArray[np.uint32] | None = None

    @property
    def num(self) -> int:
        """How many samples are named."""
        return len(self.names) // DIGEST_BYTES if self.at is None else len(self.at)

    @property
    def is_nobody(self) -> bool:
        """Whether the peer is known to hold none of the samples."""
        return self.at is not None and not len(self.at)


@dataclass(slots=True)
class Question:
    """Some samples, and until when somebody waits for the answer."""

    subject: Subject
    named: Named
    give_up_at: float
    answer: "asyncio.Future[Answer]"
    sent: "SentQuestion | None" = None
    """The message that it went with; None while it waits for its turn."""

    def settle(self, answer: Answer) -> None:
        """Answer, if anybody still waits."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def wait_again(self) -> None:
        """It was not answered, and waits for its turn once more."""
        self.sent = None

    def goes_with(self, other: "Question") -> bool:
        """Tell whether two questions can be asked in one message."""
        ours, theirs = self.named, other.named
        is_same_kind = (ours.at is None) == (theirs.at is None)
        is_same_alignment = is_same_kind and ours.alignment == theirs.alignment
        return is_same_alignment and self.subject == other.subject


class SentQuestion:
    """One message to a peer: a question, or several that had to wait and go together."""

    def __init__(self, questions: Sequence[Question], now: float) -> None:
        self.questions = questions
        self.subject = questions[0].subject
        self.asked_at = now
        self._is_missed = False
        """Whether somebody could not wait for the answer to one of the questions."""
        self._named = questions[0].named
        if len(questions) > 1:
            named = [question.named for question in questions]
            num = sum(one.num for one in named)
            at = None if self._named.at is None else np.arange(num, dtype=np.uint32)
            names = b"".join(one.names for one in named)
            self._named = Named(names, self._named.alignment, at)
        for question in questions:
            question.sent = self

    @property
    def num_samples(self) -> int:
        """How many samples it is about."""
        return self._named.num

    @property
    def give_up_at(self) -> float:
        """When nobody waits for it any more."""
        return max(question.give_up_at for question in self.questions)

    def missed(self) -> bool:
        """Take note that somebody could not wait; tell whether that is so for the first time."""
        is_first, self._is_missed = not self._is_missed, True
        return is_first

    def request(self, sender: str) -> pb.RepresentRequest:
        """Return the message."""
        request = pb.RepresentRequest(run=self.subject.run, sender=sender)
        if self._named.at is None:
            request.digests = self._named.names
        else:
            request.alignment, request.names = self._named.alignment, self._named.names
        return request

    def hear(self, response: pb.RepresentResponse) -> None:
        """Give each question its part of the answer; refuse one that does not fit."""
        answer = decoded(response, self.subject, self._named)
        if len(self.questions) == 1 or answer.problem:
            self.settle(answer)
            return
        stops = np.cumsum([question.named.num for question in self.questions])
        cuts = np.searchsorted(answer.places, stops)
        places = np.split(answer.places, cuts[:-1])
        rows = np.split(answer.representations, cuts[:-1])
        starts = [0, *stops[:-1].tolist()]
        for question, start, own, own_rows in zip(
            self.questions, starts, places, rows, strict=True
        ):
            own = own - np.uint32(start)
            at = question.named.at
            question.settle(Answer(own if at is None else at[own], own_rows))

    def settle(self, answer: Answer) -> None:
        """Give all questions the same answer."""
        for question in self.questions:
            question.settle(answer)


def decoded(response: pb.RepresentResponse, subject: Subject, named: Named) -> Answer:
    """Return the answer in a message, if it is one to a question about these samples."""
    if response.other_alignment:
        return nothing("it names people by another alignment than this client")
    if response.other_run:
        return nothing(f"it has no model of this run; it serves {quoted(response.other_run)}")
    if len(response.places) % 4:
        raise ContractError("places have four bytes each")
    places = np.frombuffer(response.places, dtype="<u4")
    num = len(places)
    if num and (places[-1] >= named.num or (num > 1 and (places[1:] <= places[:-1]).any())):
        raise ContractError("the places of an answer ascend and are within the question")
    spec = TensorSpec((num, subject.width), subject.dtype)
    representations = decode_array(response.representations, spec)
    if subject.bounds.unfit_to_use(representations) is not None:
        raise ContractError(f"expected {subject.bounds}, and a representation is not")
    return Answer(places if named.at is None else named.at[places], representations)


def nothing(problem: str, *, is_up: bool = True) -> Answer:
    """Return an answer that has no block, and says why."""
    places, rows = np.empty(0, dtype=np.uint32), np.empty((0, 0), dtype=np.float32)
    return Answer(places, rows, problem, is_up)
