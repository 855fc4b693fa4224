"""The breaker: who fails is left alone, and probed less and less often."""

import pytest

from laser_vfl.client.serving.breaker import (
    FIRST_PROBE_S,
    LAST_PROBE_S,
    MIN_PATIENCE_S,
    SLOW_FACTOR,
    Breaker,
)


def test_it_opens_with_a_problem_and_closes_with_an_answer():
    breaker = Breaker()
    assert not breaker.is_open
    breaker.failed("out of reach")
    assert breaker.is_open
    assert breaker.problem == "out of reach"
    breaker.answered(0.001)
    assert not breaker.is_open
    assert breaker.problem == ""


def test_probes_are_further_and_further_apart_up_to_a_limit():
    breaker = Breaker()
    waits = [breaker.next_probe_s() for _ in range(10)]
    assert waits[0] == FIRST_PROBE_S
    assert waits == sorted(waits)
    assert waits[-1] == waits[-2] == LAST_PROBE_S
    breaker.answered(0.001)
    assert breaker.next_probe_s() == FIRST_PROBE_S


def test_who_cannot_wait_long_does_not_blame_the_peer():
    breaker = Breaker()
    assert not breaker.kept_waiting(MIN_PATIENCE_S / 2)
    assert breaker.kept_waiting(MIN_PATIENCE_S)


def test_a_peer_that_is_usually_slow_is_given_more_time():
    breaker = Breaker()
    breaker.answered(0.1)
    assert not breaker.kept_waiting(0.1 * SLOW_FACTOR * 0.9)
    assert breaker.kept_waiting(0.1 * SLOW_FACTOR * 1.1)


def test_the_usual_time_follows_the_answers():
    breaker = Breaker()
    assert breaker.usual_s is None
    breaker.answered(1.0)
    for _ in range(100):
        breaker.answered(0.01)
    assert breaker.usual_s == pytest.approx(0.01, abs=1e-3)
