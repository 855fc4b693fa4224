"""Long work is counted, and shown where somebody looks: on a terminal, or in the log."""

import logging

import pytest

from laser_vfl.client import work_progress
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.work_progress import ALIGNING, READING, WorkDone, WorkProgress, duration_text
from laser_vfl.v1 import coordinator_pb2 as pb


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that stands still unless it is moved."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(work_progress.time, "monotonic", lambda: Clock.now)
    return Clock


def test_how_far_it_is_and_how_long_the_rest_takes(clock):
    progress = WorkProgress(is_terminal=False)
    assert progress.now == WorkDone()
    with progress.working(ALIGNING, 1000) as work:
        assert progress.now == WorkDone(ALIGNING, 0, 1000, 0.0)
        clock.now += 10
        work.advance(200)
        assert progress.now == WorkDone(ALIGNING, 200, 1000, 40.0)
        work.expect(400)
        assert progress.now == WorkDone(ALIGNING, 200, 400, 10.0)
    assert progress.now == WorkDone()


def test_work_that_fails_is_over_too():
    progress = WorkProgress(is_terminal=False)
    with pytest.raises(ValueError, match="torn"), progress.working(READING, 10):
        raise ValueError("torn")
    assert progress.now == WorkDone()


def test_two_pieces_of_work_at_a_time_are_counted_apart():
    progress = WorkProgress(is_terminal=False)
    with progress.working(ALIGNING, 10) as points:
        with progress.working(READING, 20) as read:
            points.advance(4)
            read.advance(5)
            assert (progress.now.work, progress.now.done) == (READING, 5)
        assert (progress.now.work, progress.now.done) == (ALIGNING, 4)


def test_the_log_has_a_line_now_and_then_with_the_rate_and_the_time_left(clock, caplog):
    caplog.set_level(logging.INFO)
    progress = WorkProgress(is_terminal=False)
    with progress.working(ALIGNING, 1_000_000) as work:
        for _ in range(40):
            clock.now += 1
            work.advance(10_000)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5
    assert told[0] == "aligning: 10% (100,000 points, 10,000 a second), 2 min left"
    assert told[-1] == "aligning took 40 s for 400,000 points, 10,000 a second"


def test_short_work_says_nothing(clock, caplog):
    caplog.set_level(logging.INFO)
    with WorkProgress(is_terminal=False).working(READING, 10) as work:
        work.advance(10)
    assert not caplog.records


def test_on_a_terminal_there_is_a_bar_and_no_lines(clock, caplog):
    caplog.set_level(logging.INFO)
    with WorkProgress("bank", is_terminal=True).working(READING, 40_000_000) as work:
        work.advance(1)
        assert work._bar is None, "short work needs none"
        clock.now += 20
        work.advance(10_000_000)
        assert work._bar is not None
        assert not caplog.records


def test_heartbeats_say_how_far_it_is():
    progress, heartbeat = Progress(work=WorkProgress(is_terminal=False)), pb.Heartbeat()
    with progress.work.working(ALIGNING, 10) as work:
        work.advance(3)
        progress.describe(heartbeat)
        assert (heartbeat.work.work, heartbeat.work.done, heartbeat.work.total) == (ALIGNING, 3, 10)
    progress.describe(heartbeat)
    assert not heartbeat.HasField("work")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations_for_people(seconds, text):
    assert duration_text(seconds) == text
