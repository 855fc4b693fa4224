"""When a score was reached, and what a step may take at least."""

import pytest

from laser_vfl.bench.time_to_score import (
    StepClock,
    first_reaching,
    overlap_limit_s,
    seconds_until,
)
from laser_vfl.planning.clocks import NetworkLine

LINE = NetworkLine(bytes_per_s=1e6, rtt_s=0.05)


def clock(*points):
    return StepClock.of([{"step": step, "time": time} for step, time in points])


def test_time_between_two_lines_of_metrics_is_even():
    one = clock((1, 100.0), (11, 101.0), (31, 102.0))
    assert one.at(1) == 100.0
    assert one.at(6) == pytest.approx(100.5)
    assert one.at(11) == 101.0
    assert one.at(21) == pytest.approx(101.5)
    assert one.at(31) == 102.0
    with pytest.raises(ValueError, match="32 steps"):
        one.at(32)


def test_a_step_is_timed_after_the_first_ones():
    one = clock((1, 100.0), (11, 105.0), (21, 106.0), (41, 108.0))
    assert one.step_s(10) == pytest.approx(0.1)
    assert one.step_s(11) == pytest.approx(0.1)
    assert one.step_s(100) == pytest.approx(8 / 40)
    assert clock((1, 100.0)).step_s(0) == 0.0


def test_the_last_client_decides():
    clocks = [clock((1, 10.0), (11, 11.0)), clock((1, 10.2), (11, 12.2))]
    assert seconds_until(clocks, 11) == pytest.approx(2.2)
    assert seconds_until(clocks, 6) == pytest.approx(1.2)


def test_a_score_counts_when_it_is_first_reached():
    scores = [(10, 0.5), (20, 0.92), (30, 0.9), (40, 0.95)]
    assert first_reaching(scores, 0.92) == 20
    assert first_reaching(scores, 0.93) == 40
    assert first_reaching(scores, 0.96) is None


@pytest.mark.parametrize(
    ("compute_s", "num_bytes", "pipeline", "limit_s"),
    [
        (0.01, 20_000, 0, 0.08),
        (0.01, 20_000, 1, 0.04),
        (0.01, 20_000, 3, 0.02),
        (0.01, 20_000, 7, 0.02),
        (0.03, 20_000, 7, 0.03),
        (0.03, 5_000, 3, 0.03),
    ],
    ids=["one wait", "half of it", "a quarter", "bytes", "compute", "compute of few bytes"],
)
def test_a_step_takes_its_computing_its_bytes_or_its_share_of_the_way(
    compute_s, num_bytes, pipeline, limit_s
):
    assert overlap_limit_s(compute_s, num_bytes, LINE, pipeline) == pytest.approx(limit_s)
