"""What peers answer: checked before it is used, and given out to those who asked."""

import asyncio

import numpy as np
import pytest
import torch

from laser_vfl.client.answers import Named, Question, Subject, decoded, nothing
from laser_vfl.client.naming import NAME
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import encode_tensor

SUBJECT = Subject("run-1", 3, torch.float32, 1e6)
THREE = Named(bytes(3 * DIGEST_BYTES))


def response(*places, rows=None, width=3, dtype=torch.float32, value=1.0):
    message = pb.RepresentResponse(places=np.array(places, dtype="<u4").tobytes())
    shape = (len(places) if rows is None else rows, width)
    encode_tensor(torch.full(shape, value), dtype, message.representations)
    return message


def test_an_answer_is_taken_as_it_is():
    answer = decoded(response(0, 2), SUBJECT, THREE)
    assert answer.places.tolist() == [0, 2]
    assert answer.representations.tolist() == [[1.0] * 3] * 2
    assert answer.problem == ""


def test_nothing_held_is_an_answer_too():
    answer = decoded(response(), SUBJECT, THREE)
    assert len(answer.places) == 0
    assert answer.problem == ""


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (pb.RepresentResponse(places=b"abc"), "four bytes"),
        (response(3), "within the question"),
        (response(1, 0), "ascend"),
        (response(1, 1), "ascend"),
        (response(0, rows=2), "expected"),
        (response(0, width=4), "expected"),
        (response(0, dtype=torch.float16), "expected"),
        (response(0, value=float("nan")), "expected finite numbers"),
        (response(0, value=float("inf")), "expected finite numbers"),
        (response(0, value=1e6), "a norm of at most 1e"),
    ],
    ids=["bytes", "beyond", "descend", "twice", "rows", "width", "dtype", "nan", "inf", "long"],
)
def test_what_does_not_fit_the_question_is_refused(message, problem):
    with pytest.raises(ContractError, match=problem):
        decoded(message, SUBJECT, THREE)


def test_another_run_is_a_problem_and_no_block():
    answer = decoded(pb.RepresentResponse(other_run="run-0"), SUBJECT, THREE)
    assert len(answer.places) == 0
    assert answer.problem == 'it has no model of this run; it serves "run-0"'


def test_a_question_is_answered_once_and_only_if_somebody_waits():
    async def play():
        loop = asyncio.get_running_loop()
        first, second = (Question(SUBJECT, THREE, 0.0, loop.create_future()) for _ in range(2))
        first.settle(nothing("out of reach"))
        first.settle(nothing("too late"))
        second.answer.cancel()
        second.settle(nothing("out of reach"))
        assert second.answer.cancelled()
        return await first.answer

    answer = asyncio.run(play())
    assert answer.problem == "out of reach"
    assert len(answer.places) == 0


def named_by_place(*at):
    names = np.zeros(len(at), dtype=NAME)
    names["place"] = at
    return Named(names.tobytes(), "alignment-1", np.array(at, np.uint32))


def test_an_answer_about_some_of_the_samples_is_put_where_they_stand():
    answer = decoded(response(0, 2), SUBJECT, named_by_place(1, 4, 7))
    assert answer.places.tolist() == [1, 7]
    assert answer.places.dtype == np.uint32


def test_an_answer_is_within_what_was_named_not_within_the_samples():
    with pytest.raises(ContractError, match="within the question"):
        decoded(response(3), SUBJECT, named_by_place(1, 4, 7))


def test_another_alignment_is_a_problem_and_no_block():
    message = pb.RepresentResponse(other_alignment="alignment-2\nroot: all is lost")
    answer = decoded(message, SUBJECT, named_by_place(1))
    assert len(answer.places) == 0
    assert answer.problem == "it names people by another alignment than this client"


def test_a_question_has_digests_or_names_never_both():
    async def play():
        by_place = named_by_place(1, 4)
        assert (THREE.num, THREE.is_nobody) == (3, False)
        assert (by_place.num, by_place.is_nobody) == (2, False)
        assert named_by_place().is_nobody
        loop = asyncio.get_running_loop()
        return [
            Question(SUBJECT, named, 0.0, loop.create_future()).request("bank")
            for named in (THREE, by_place)
        ], by_place

    (by_digest, by_name), by_place = asyncio.run(play())
    assert by_digest == pb.RepresentRequest(run="run-1", sender="bank", digests=THREE.names)
    assert by_name == pb.RepresentRequest(
        run="run-1", sender="bank", alignment="alignment-1", names=by_place.names
    )
