"""Questions to peers, and their answers."""

import asyncio
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError, quoted
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import TensorSpec, decode_array


@dataclass(frozen=True)
class Subject:
    """What is asked about: the run, and the representations that it has."""

    run: str
    width: int
    dtype: torch.dtype


@dataclass(slots=True)
class Answer:
    """Representations of the samples at `places` of the question; or why there are none."""

    places: npt.NDArray[np.uint32]
    representations: npt.NDArray[np.float32]
    problem: str = ""


@dataclass(slots=True)
class Question:
    """Some samples, and until when somebody waits for the answer."""

    subject: Subject
    digests: bytes
    give_up_at: float
    answer: "asyncio.Future[Answer]"
    asked_at: float = 0.0

    @property
    def num_ids(self) -> int:
        """How many samples it is about."""
        return len(self.digests) // DIGEST_BYTES

    def settle(self, answer: Answer) -> None:
        """Answer, if anybody still waits."""
        if not self.answer.done():
            self.answer.set_result(answer)


def decoded(response: pb.RepresentResponse, subject: Subject, num_ids: int) -> Answer:
    """Return the answer in a message, if it is one to a question about `num_ids` samples."""
    if response.other_run:
        return nothing(f"it has no model of this run; it serves {quoted(response.other_run)}")
    if len(response.places) % 4:
        raise ContractError("places have four bytes each")
    places = np.frombuffer(response.places, dtype="<u4")
    if len(places) and (places[-1] >= num_ids or (places[1:] <= places[:-1]).any()):
        raise ContractError("the places of an answer ascend and are within the question")
    spec = TensorSpec((len(places), subject.width), subject.dtype)
    representations = decode_array(response.representations, spec)
    if not math.isfinite(representations.sum()):
        raise ContractError("a representation is not finite")
    return Answer(places, representations)


def nothing(problem: str) -> Answer:
    """Return an answer that has no block, and says why."""
    return Answer(np.empty(0, dtype=np.uint32), np.empty((0, 0), dtype=np.float32), problem)
