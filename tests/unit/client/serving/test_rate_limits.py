"""How much a peer may ask: rates, bursts, debts, and what is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.core.token_bucket import Bucket


def test_a_burst_of_a_second_is_allowed_at_once():
    accounts = Accounts(requests_per_s=5, samples_per_s=1000)
    waits = [accounts.admit("bank", 1, now=100.0) for _ in range(7)]
    assert waits[:5] == [0.0] * 5
    assert all(wait > 0 for wait in waits[5:])


def test_who_waits_as_told_is_admitted():
    accounts = Accounts(requests_per_s=5, samples_per_s=1000)
    now = 100.0
    for _ in range(50):
        now += accounts.admit("bank", 1, now) + 1e-9
    account = accounts.by_peer["bank"]
    assert account.num_requests == 50
    assert account.num_refused <= 25


def test_a_large_question_is_answered_and_paid_for_afterwards():
    accounts = Accounts(requests_per_s=1000, samples_per_s=10)
    assert accounts.admit("bank", 100, now=50.0) == 0.0
    wait_s = accounts.admit("bank", 1, now=50.0)
    assert wait_s == pytest.approx(9.1)
    assert accounts.admit("bank", 1, now=50.0 + wait_s * 0.99) > 0
    assert accounts.admit("bank", 1, now=50.0 + wait_s + 1e-6) == 0.0


def test_peers_do_not_pay_for_each_other():
    accounts = Accounts(requests_per_s=1, samples_per_s=1)
    assert accounts.admit("bank", 100, now=9.0) == 0.0
    assert accounts.admit("bank", 1, now=9.0) > 0
    assert accounts.admit("shop", 1, now=9.0) == 0.0


def test_what_is_refused_is_counted_but_not_taken():
    accounts = Accounts(requests_per_s=1, samples_per_s=10)
    accounts.admit("bank", 3, now=9.0)
    waits = [accounts.admit("bank", 3, now=9.0) for _ in range(5)]
    assert len(set(waits)) == 1, "to be refused costs nothing"
    accounts.served("bank", 2)
    account = accounts.by_peer["bank"]
    assert (account.num_requests, account.num_ids_asked) == (6, 18)
    assert (account.num_refused, account.num_ids_served) == (5, 2)


def test_a_question_about_nothing_is_a_request_all_the_same():
    accounts = Accounts(requests_per_s=2, samples_per_s=10)
    assert [accounts.admit("bank", 0, now=9.0) > 0 for _ in range(3)] == [False, False, True]


@given(
    per_s=st.floats(0.01, 1000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 50)), max_size=30),
)
def test_no_more_than_the_rate_is_ever_taken(per_s, steps):
    bucket, now, taken, last = Bucket(per_s), 7.0, 0.0, 0
    for pause_s, amount in steps:
        now += pause_s
        if bucket.wait_s(now) == 0.0:
            bucket.take(amount)
            taken, last = taken + amount, amount
            assert taken - last <= max(1.0, per_s) + per_s * (now - 7.0) + 1e-6
        else:
            assert bucket.wait_s(now + bucket.wait_s(now) * (1 + 1e-9) + 1e-9) <= 1e-6
