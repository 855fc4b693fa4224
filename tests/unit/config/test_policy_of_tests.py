"""Fault tests shorten waiting times by an environment variable that a daemon reads at its start."""

import json

import pytest

from laser_vfl.client.waiting_times import WaitingTimes
from laser_vfl.config.test_policy import VARIABLE, for_tests
from laser_vfl.coordinator.rules.policies import AlignmentPolicy, MembershipPolicy


@pytest.mark.parametrize("policy", [MembershipPolicy(quorum=2), AlignmentPolicy(), WaitingTimes()])
def test_without_the_variable_a_policy_is_what_it_was(monkeypatch, policy):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert for_tests(policy) is policy


def test_a_test_changes_some_fields_of_one_policy(monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps({"MembershipPolicy": {"away_s": 0.2}}))
    assert for_tests(MembershipPolicy(quorum=2)) == MembershipPolicy(quorum=2, away_s=0.2)
    assert for_tests(WaitingTimes()) == WaitingTimes()


def test_a_field_that_there_is_not_ends_the_daemon(monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps({"WaitingTimes": {"retry": 0.2}}))
    with pytest.raises(TypeError):
        for_tests(WaitingTimes())
