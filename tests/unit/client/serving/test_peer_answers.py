"""What peers answer: checked before it is used, and given out to those who asked."""

import asyncio

import numpy as np
import pytest
import torch

from laser_vfl.client.serving.peer_answers import (
    Named,
    Question,
    SentQuestion,
    Subject,
    decoded,
    nothing,
)
from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import ContractError
from laser_vfl.transport.tensor_codec import encode_tensor
from laser_vfl.v1 import peer_pb2 as pb

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
            SentQuestion([Question(SUBJECT, named, 0.0, loop.create_future())], 0.0).request("bank")
            for named in (THREE, by_place)
        ], by_place

    (by_digest, by_name), by_place = asyncio.run(play())
    assert by_digest == pb.RepresentRequest(run="run-1", sender="bank", digests=THREE.names)
    assert by_name == pb.RepresentRequest(
        run="run-1", sender="bank", alignment="alignment-1", names=by_place.names
    )


@pytest.mark.parametrize("by_place", [False, True], ids=["digests", "names"])
def test_questions_that_go_together_get_their_own_parts_of_the_answer(by_place):
    """Two samples, three and one; the peer holds the second, the third, the fifth and the last."""

    async def play():
        loop = asyncio.get_running_loop()
        if by_place:
            named = [named_by_place(1, 4), named_by_place(0, 2, 9), named_by_place(5)]
        else:
            named = [Named(bytes(num * DIGEST_BYTES)) for num in (2, 3, 1)]
        questions = [Question(SUBJECT, one, 9.0, loop.create_future()) for one in named]
        assert all(questions[0].goes_with(other) for other in questions)
        sent = SentQuestion(questions, 1.0)
        assert sent.num_samples == 6
        message = pb.RepresentResponse(places=np.array([1, 2, 4, 5], dtype="<u4").tobytes())
        values = torch.arange(4.0)[:, None].expand(4, 3)
        encode_tensor(values, torch.float32, message.representations)
        sent.hear(message)
        return [await question.answer for question in questions]

    answers = asyncio.run(play())
    expected = [[4], [0, 9], [5]] if by_place else [[1], [0, 2], [0]]
    assert [answer.places.tolist() for answer in answers] == expected
    assert [answer.representations[:, 0].tolist() for answer in answers] == [[0], [1, 2], [3]]


def test_questions_about_different_models_or_alignments_do_not_go_together():
    async def play():
        future = asyncio.get_running_loop().create_future()
        by_digest = Question(SUBJECT, THREE, 0.0, future)
        other_model = Question(Subject("run-2", 3, torch.float32, 1e6), THREE, 0.0, future)
        by_name = Question(SUBJECT, named_by_place(1), 0.0, future)
        other = Question(SUBJECT, Named(b"", "alignment-2", np.empty(0, np.uint32)), 0.0, future)
        assert not by_digest.goes_with(other_model)
        assert not by_digest.goes_with(by_name)
        assert not by_name.goes_with(other)

    asyncio.run(play())
