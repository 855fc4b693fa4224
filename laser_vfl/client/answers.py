"""Questions to peers, and their answers."""

import asyncio
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.bounds import Bounds
from laser_vfl.core.errors import ContractError, quoted
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import TensorSpec, decode_array


@dataclass(frozen=True)
class Subject:
    """What is asked about: the run, and the representations that it has."""

    run: str
    width: int
    dtype: torch.dtype
    max_norm: float


@dataclass(slots=True)
class Answer:
    """Representations of the samples at `places` of the question; or why there are none."""

    places: npt.NDArray[np.uint32]
    representations: npt.NDArray[np.float32]
    problem: str = ""


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
    asked_at: float = 0.0

    def request(self, sender: str) -> pb.RepresentRequest:
        """Return the question as a message."""
        named = self.named
        request = pb.RepresentRequest(run=self.subject.run, sender=sender)
        if named.at is None:
            request.digests = named.names
        else:
            request.alignment, request.names = named.alignment, named.names
        return request

    def settle(self, answer: Answer) -> None:
        """Answer, if anybody still waits."""
        if not self.answer.done():
            self.answer.set_result(answer)


def decoded(response: pb.RepresentResponse, subject: Subject, named: Named) -> Answer:
    """Return the answer in a message, if it is one to a question about these samples."""
    if response.other_alignment:
        return nothing("it names people by another alignment than this client")
    if response.other_run:
        return nothing(f"it has no model of this run; it serves {quoted(response.other_run)}")
    if len(response.places) % 4:
        raise ContractError("places have four bytes each")
    places = np.frombuffer(response.places, dtype="<u4")
    if len(places) and (places[-1] >= named.num or (places[1:] <= places[:-1]).any()):
        raise ContractError("the places of an answer ascend and are within the question")
    spec = TensorSpec((len(places), subject.width), subject.dtype)
    representations = decode_array(response.representations, spec)
    bounds = Bounds(subject.max_norm, subject.dtype)
    if bounds.unfit_to_use(representations) is not None:
        raise ContractError(f"expected {bounds}, and a representation is not")
    return Answer(places if named.at is None else named.at[places], representations)


def nothing(problem: str) -> Answer:
    """Return an answer that has no block, and says why."""
    return Answer(np.empty(0, dtype=np.uint32), np.empty((0, 0), dtype=np.float32), problem)
