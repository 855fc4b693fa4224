"""The pacer: what a peer refuses tells how fast it may be asked, and it is not asked faster."""

import math

import pytest

from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.client.serving.pacer import KNOWN_FOR_S, SHARE, Pacer


def test_who_is_never_refused_never_waits():
    pacer = Pacer()
    for _ in range(100):
        assert pacer.wait_s(5.0) == 0.0
        pacer.sent(10_000)
    assert not pacer.is_learning


def test_nothing_is_sent_before_the_time_that_a_refusal_names():
    pacer = Pacer()
    pacer.sent(10)
    pacer.refused(10, 2.0, now=100.0)
    assert pacer.is_learning
    assert pacer.wait_s(100.5) == pytest.approx(1.5)
    assert pacer.wait_s(102.0) == 0.0


@pytest.mark.parametrize("per_s", [50.0, 300.0, 10_000.0])
@pytest.mark.parametrize("latency_s", [0.0, 0.05])
def test_after_a_few_refusals_a_peer_is_asked_as_fast_as_it_allows(per_s, latency_s):
    accounts = Accounts(requests_per_s=1000, samples_per_s=per_s)
    pacer, now, num_answered, refused_at = Pacer(), 100.0, 0, []
    while now < 100.0 + KNOWN_FOR_S * 0.8:
        now += pacer.wait_s(now) + 1e-6
        pacer.sent(100)
        now += latency_s
        wait_s = accounts.admit("bank", 100, now)
        now += latency_s
        if wait_s:
            refused_at.append(now)
            pacer.refused(100, math.ceil(wait_s * 1e3) / 1e3, now)
        else:
            num_answered += 100
    assert len(refused_at) <= 5
    allowed = min(per_s * (now - 100.0), 100 * (now - 100.0) / max(2 * latency_s, 1e-9))
    assert num_answered >= 0.9 * SHARE * allowed


def test_a_rate_that_is_old_is_measured_again():
    pacer = Pacer()
    for now in (100.0, 101.0):
        pacer.sent(10)
        pacer.sent(10)
        pacer.refused(10, 0.5, now)
    assert pacer.wait_s(101.5) == pytest.approx(0.0, abs=1e-9)
    pacer.sent(10)
    assert pacer.wait_s(101.5) > 0.5
    assert pacer.wait_s(101.5 + KNOWN_FOR_S + 0.1) == 0.0
    pacer.sent(10_000)
    assert pacer.wait_s(101.5 + KNOWN_FOR_S + 0.1) == 0.0
