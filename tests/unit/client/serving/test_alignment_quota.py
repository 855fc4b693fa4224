"""The quota of ids that an application has aligned: a day long, on disk, and for each its own."""

import json
import os

import pytest

from laser_vfl.client.serving.limits.alignment_quota import DAY_S, AlignmentQuota

NOW = 1_700_000_000.0


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "requested-ids.json"


def test_each_application_has_its_own(path, clock):
    quota = AlignmentQuota(path, 10, clock)
    assert quota.take("crm", 7)
    assert (quota.left("crm"), quota.left("web")) == (3, 10)


def test_a_restart_does_not_lift_it(path, clock):
    assert AlignmentQuota(path, 10, clock).take("crm", 7)
    again = AlignmentQuota(path, 10, clock)
    assert again.left("crm") == 3
    assert again.take("crm", 3)
    assert AlignmentQuota(path, 10, clock).left("crm") == 0


def test_it_comes_back_after_a_day(path, clock):
    quota = AlignmentQuota(path, 10, clock)
    assert quota.take("crm", 7)
    clock.now += DAY_S - 60
    assert quota.take("crm", 2)
    assert quota.left("crm") == 1
    clock.now += 180
    assert quota.left("crm") == 8
    assert quota.take("web", 1)
    assert "crm" in json.loads(path.read_text()), "what counts still is kept"


def test_a_smaller_quota_holds_at_once(path, clock):
    assert AlignmentQuota(path, 10, clock).take("crm", 7)
    assert AlignmentQuota(path, 5, clock).left("crm") == 0


def test_a_file_that_is_damaged_lifts_nothing(path, clock):
    for content in ("{", "[1]", '{"crm": 3}', '{"crm": {"x": 1}}', '{"crm": {"1": -5}}'):
        path.write_text(content)
        os.utime(path, (NOW, NOW))
        clock.now = NOW + 10
        quota = AlignmentQuota(path, 10, clock)
        assert quota.left("crm") == quota.left("web") == 0
        clock.now = NOW + DAY_S + 1
        assert quota.left("crm") == 10


def test_what_cannot_be_counted_is_not_allowed(path, clock):
    quota = AlignmentQuota(path.parent / "missing" / path.name, 10, clock)
    assert not quota.take("crm", 7)
    assert quota.left("crm") == 10


def test_the_file_stays_short_and_is_its_owners(path, clock):
    quota = AlignmentQuota(path, 100_000, clock)
    for _ in range(500):
        assert quota.take("crm", 1)
        clock.now += 0.01
    assert len(path.read_text()) < 60
    assert path.stat().st_mode & 0o077 == 0
