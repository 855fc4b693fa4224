"""What metrics.jsonl says of speed, and of what else happened."""

import json

import pytest

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.training import progress_display as module
from laser_vfl.client.training.progress_display import ProgressDisplay


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def observer(tmp_path, clock):
    return ProgressDisplay(
        "bank", StateDirectory(tmp_path), 1000, 100, Progress(), ClientMetrics(), "run-1"
    )


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def steps(observer, clock, first, last):
    for step in range(first, last):
        clock.now += 0.1
        observer.step_done(step + 1, 0.5)


def test_a_line_for_the_first_step_then_once_a_second(tmp_path, observer, clock):
    observer.goes_on_from(0)
    steps(observer, clock, 0, 31)
    assert [line["step"] for line in lines(tmp_path)] == [1, 11, 21, 31]
    assert all(line["steps_per_s"] == pytest.approx(10) for line in lines(tmp_path))


def test_what_was_loaded_is_no_speed(tmp_path, observer, clock):
    clock.now += 5.0
    observer.goes_on_from(400)
    steps(observer, clock, 400, 412)
    assert [line["step"] for line in lines(tmp_path)] == [401, 411]
    assert all(line["steps_per_s"] == pytest.approx(10) for line in lines(tmp_path))


def test_steps_that_the_others_did_meanwhile_are_no_speed(tmp_path, observer, clock):
    observer.goes_on_from(0)
    steps(observer, clock, 0, 15)
    clock.now += 20.0
    observer.goes_on_from(300)
    steps(observer, clock, 300, 312)
    observer.goes_on_from(200)
    steps(observer, clock, 200, 212)
    assert [line["step"] for line in lines(tmp_path)] == [1, 11, 310, 210]
    assert all(line["steps_per_s"] == pytest.approx(10) for line in lines(tmp_path))


def test_standing_still_is_slow(tmp_path, observer, clock):
    observer.goes_on_from(0)
    steps(observer, clock, 0, 1)
    clock.now += 4.9
    observer.goes_on_from(1)
    steps(observer, clock, 1, 2)
    assert lines(tmp_path)[-1]["steps_per_s"] == pytest.approx(0.2)


def test_events_have_the_time_and_the_run(tmp_path, observer):
    observer.note("view", generation=2, members=("bank",), next_step=7)
    assert lines(tmp_path) == [
        {
            "time": 1000.0,
            "run": "run-1",
            "event": "view",
            "generation": 2,
            "members": ["bank"],
            "next_step": 7,
        }
    ]
