"""How many alignments a client takes part in: a limit that a restart does not lift."""

import json
import os

import pytest

from laser_vfl.client.alignment import alignment_ledger as ledger_module
from laser_vfl.client.alignment.alignment_ledger import DAY_S, AlignmentLedger
from laser_vfl.core.errors import LaserError, LimitExceeded, StateUnwritable

START = 1_800_000_000.0


class Clock:
    """A time that passes when told to."""

    def __init__(self):
        self.now = START

    def time(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(ledger_module, "time", clock)
    return clock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "alignments.json"


def note(ledger, clock, count, every_s=60.0):
    for _ in range(count):
        ledger.note()
        clock.now += every_s


def test_no_more_than_so_many_within_a_day(clock, path):
    ledger = AlignmentLedger(path, 3)
    note(ledger, clock, 3)
    with pytest.raises(LimitExceeded, match="3 alignments within a day") as caught:
        ledger.check()
    assert caught.value.retry_after_s == DAY_S - 3 * 60
    assert "alignments_per_day" in caught.value.hint
    with pytest.raises(LimitExceeded):
        ledger.note()
    clock.now = START + DAY_S - 1
    with pytest.raises(LimitExceeded):
        ledger.check()
    clock.now = START + DAY_S
    ledger.note()
    with pytest.raises(LimitExceeded):
        ledger.check()
    clock.now = START + DAY_S + 60
    ledger.check()


def test_looking_does_not_count(clock, path):
    ledger = AlignmentLedger(path, 1)
    for _ in range(5):
        ledger.check()
        assert ledger.may_align_ids()
    assert not path.exists()


def test_a_restart_does_not_lift_the_limit(clock, path):
    note(AlignmentLedger(path, 2), clock, 1)
    note(AlignmentLedger(path, 2), clock, 1)
    with pytest.raises(LimitExceeded):
        AlignmentLedger(path, 2).check()
    AlignmentLedger(path, 3).check()


def test_what_was_refused_leaves_no_trace(clock, path):
    ledger = AlignmentLedger(path, 1)
    ledger.note()
    before = path.read_bytes()
    with pytest.raises(LimitExceeded):
        ledger.note()
    assert path.read_bytes() == before


def test_old_times_are_not_kept(clock, path):
    ledger = AlignmentLedger(path, 5)
    note(ledger, clock, 5, every_s=DAY_S / 2)
    assert len(json.loads(path.read_text())) == 2
    assert [child.name for child in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2",
        b"null",
        b"7",
        b'{"a": 1}',
        b'["x"]',
        b"[[]]",
        b"[NaN]",
        b"[1e999]",
    ],
)
def test_a_file_that_makes_no_sense_does_not_lift_the_limit(clock, path, content, caplog):
    path.write_bytes(content)
    os.utime(path, (START, START))
    clock.now = START + DAY_S - 1
    ledger = AlignmentLedger(path, 2)
    assert "alignments.json" in caplog.text
    with pytest.raises(LimitExceeded):
        ledger.note()
    clock.now = START + DAY_S
    ledger.note()
    AlignmentLedger(path, 2).check()


def test_an_alignment_is_on_disk_before_it_happens(clock, path, monkeypatch):
    synced = []
    monkeypatch.setattr("laser_vfl.atomic_files.os.fsync", synced.append)
    AlignmentLedger(path, 2).note()
    assert len(synced) == 2, "the file and its directory"


def test_times_that_are_out_of_order_count_all_the_same(clock, path):
    path.write_text(json.dumps([START - 10, START - 30, START - 20]))
    with pytest.raises(LimitExceeded) as caught:
        AlignmentLedger(path, 3).check()
    assert caught.value.retry_after_s == DAY_S - 30


def test_half_of_the_days_are_for_unaligned_ids_at_any_pace_the_rest_is_spread(clock, path):
    ledger = AlignmentLedger(path, 4)
    note(ledger, clock, 2, every_s=0.0)
    assert not ledger.may_align_ids()
    clock.now += DAY_S / 2
    assert not ledger.may_align_ids()
    clock.now += 1
    assert ledger.may_align_ids()
    ledger.note()
    assert not ledger.may_align_ids()
    ledger.note()
    assert not ledger.may_align_ids()
    clock.now += DAY_S
    assert ledger.may_align_ids()


def test_unaligned_ids_leave_room_for_a_run_even_if_they_come_all_day(clock, path):
    ledger = AlignmentLedger(path, 10)
    for _ in range(2 * 24 * 60):
        if ledger.may_align_ids():
            ledger.note()
        ledger.check()
        clock.now += 60


def test_what_cannot_be_counted_does_not_take_place(clock, tmp_path):
    directory = tmp_path / "gone"
    directory.mkdir()
    ledger = AlignmentLedger(directory / "alignments.json", 3)
    directory.rmdir()
    with pytest.raises(StateUnwritable) as caught:
        ledger.note()
    assert isinstance(caught.value, LaserError)
    assert "not counted does not take place" in caught.value.hint
    assert caught.value.message.startswith("alignments.json cannot be written (")
    assert caught.value.where == str(directory)


def test_an_alignment_that_came_to_nothing_is_given_back(clock, path):
    ledger = AlignmentLedger(path, 2)
    note(ledger, clock, 2)
    ledger.give_back()
    ledger.check()
    AlignmentLedger(path, 2).check()
    ledger.note()
    with pytest.raises(LimitExceeded):
        AlignmentLedger(path, 2).check()


def test_no_more_are_given_back_in_a_day_than_are_allowed_in_a_day(clock, path):
    for _ in range(3):
        ledger = AlignmentLedger(path, 3)  # a restart does not lift the bound
        note(ledger, clock, 1)
        ledger.give_back()
    note(ledger, clock, 3)
    ledger.give_back()
    with pytest.raises(LimitExceeded):
        ledger.check()
    clock.now = START + DAY_S + 3600
    note(ledger, clock, 3)
    ledger.give_back()
    ledger.check()


def test_what_was_given_back_is_nothing_to_an_earlier_release(clock, path):
    ledger = AlignmentLedger(path, 3)
    note(ledger, clock, 2)
    ledger.give_back()
    times = json.loads(path.read_text())
    assert [moment for moment in times if clock.now - DAY_S < moment <= clock.now] == [START]


def test_without_an_alignment_there_is_nothing_to_give_back(clock, path):
    ledger = AlignmentLedger(path, 1)
    ledger.give_back()
    note(ledger, clock, 1)
    with pytest.raises(LimitExceeded):
        ledger.check()
