"""Who is told to come back does so, while the deadline allows it."""

from types import SimpleNamespace

import grpc
import pytest

from laser_vfl.core.errors import LimitExceeded
from laser_vfl.remote import predictor as module
from laser_vfl.remote.calls import Access, call_patiently
from laser_vfl.remote.predictor import Predictor
from tests.support.fakes.remote_fake import response_to


class Refused(grpc.RpcError):
    """What gRPC raises for a call that was too much."""

    def __init__(self, retry_ms):
        self._trailing = (
            ("laser-vfl-error", "LimitExceeded"),
            ("laser-vfl-retry-after-ms", str(retry_ms)),
        )

    def code(self):
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self):
        return "the memory for requests is taken by other requests"

    def trailing_metadata(self):
        return self._trailing


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


def predictor_of(clock, answers):
    """Return a predictor whose client answers so, and what it was asked: deadlines."""
    predictor = Predictor.by_access("127.0.0.1:1", Access())
    asked, answers = [], iter(answers)

    def predict(request, timeout):
        asked.append(request.deadline_s)
        answer = next(answers)
        if answer is not None:
            raise answer
        return response_to(request.ids)

    def wait(seconds):
        clock.now += seconds
        return False

    predictor._stub = SimpleNamespace(Predict=predict)
    predictor._closed = SimpleNamespace(wait=wait, set=lambda: None)
    return predictor, asked


def test_it_asks_again_when_it_was_told_to(clock):
    predictor, asked = predictor_of(clock, [Refused(500), Refused(1500), None])
    assert predictor.predict(["x"], deadline=5.0).ids == ("x",)
    assert asked == pytest.approx([5.0, 4.5, 3.0])
    assert clock.now == pytest.approx(102.0)


def test_it_does_not_wait_longer_than_its_deadline(clock):
    predictor, asked = predictor_of(clock, [Refused(500), Refused(500)])
    with pytest.raises(LimitExceeded, match="is taken by other requests"):
        predictor.predict(["x"], deadline=0.8)
    assert len(asked) == 2
    assert clock.now == pytest.approx(100.5)


def answering_in_turn(clock, answers):
    """Return a call that answers so, and the time that each was allowed."""
    allowed, answers = [], iter(answers)

    def ask(request, timeout):
        allowed.append(timeout)
        answer = next(answers)
        if isinstance(answer, grpc.RpcError):
            raise answer
        return answer

    return ask, allowed


@pytest.fixture
def sleeping(monkeypatch, clock):
    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(module.time, "sleep", sleep)
    return clock


def test_a_look_that_came_too_soon_is_taken_again_when_the_daemon_says(sleeping):
    ask, allowed = answering_in_turn(sleeping, [Refused(50), Refused(2_000), "here"])
    assert call_patiently(ask, None, "127.0.0.1:1", 10.0) == "here"
    assert allowed == pytest.approx([10.0, 9.95, 7.95])


def test_a_look_that_would_come_too_late_is_not_taken(sleeping):
    ask, allowed = answering_in_turn(sleeping, [Refused(4_000), Refused(6_001)])
    with pytest.raises(LimitExceeded):
        call_patiently(ask, None, "127.0.0.1:1", 10.0)
    assert len(allowed) == 2
    assert sleeping.now == pytest.approx(104.0)
