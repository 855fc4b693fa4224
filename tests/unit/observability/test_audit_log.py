"""The audit log: one line for each event, in a file that cannot be filled by a hostile caller."""

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from laser_vfl.observability import audit_log as audit_module
from laser_vfl.observability.audit_log import FEW, AuditLog
from laser_vfl.observability.tallies import MAX_KINDS, Tallies


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def audit(path: Path, clock: Clock) -> AuditLog:
    return AuditLog(path, clock)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_a_line_that_only_the_owner_can_read(audit: AuditLog, path: Path) -> None:
    audit.note("joined", client="bank", members=["bank", "shop"], incarnation=3)
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.000+00:00",
            "event": "joined",
            "client": "bank",
            "members": ["bank", "shop"],
            "incarnation": 3,
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_daemon_life_appends(path: Path, clock: Clock) -> None:
    AuditLog(path, clock).note("started")
    AuditLog(path, clock).note("started")
    assert [line["event"] for line in lines(path)] == ["started", "started"]


def test_what_others_say_stays_on_its_line_and_is_short(audit: AuditLog, path: Path) -> None:
    audit.refused("spiffe://a/client/b\n{}", "Register", "INVALID", "x" * 10_000)
    [line] = lines(path)
    assert line["identity"] == "spiffe://a/client/b?{}"
    assert len(line["reason"]) == audit_module.MAX_TEXT


def test_repeated_refusals_become_one_line_a_minute(
    audit: AuditLog, path: Path, clock: Clock
) -> None:
    for _ in range(1000):
        audit.refused("mallory", "Represent", "PERMISSION_DENIED", "not a member")
        audit.flush()
    assert [line["count"] for line in lines(path)] == [1]
    clock.now += 59.9
    audit.flush()
    assert len(lines(path)) == 1
    clock.now += 0.2
    audit.flush()
    assert [line["count"] for line in lines(path)] == [1, 999]
    assert lines(path)[1]["since"] == "2023-11-14T22:13:20.000+00:00"
    audit.flush()
    audit.refused("mallory", "Represent", "PERMISSION_DENIED", "not a member")
    assert [line["count"] for line in lines(path)] == [1, 999, 1]


def test_one_refusal_has_no_second_line(audit: AuditLog, path: Path, clock: Clock) -> None:
    audit.refused("mallory", "Represent", "PERMISSION_DENIED", "not a member")
    clock.now += 61
    audit.flush()
    audit.close()
    assert len(lines(path)) == 1


def test_reasons_that_differ_are_told_apart_up_to_a_bound(audit: AuditLog, path: Path) -> None:
    for i in range(10 * MAX_KINDS):
        audit.refused("mallory", "Represent", "INVALID", f"reason {i}")
    written = lines(path)
    assert len(written) == MAX_KINDS + 1
    assert written[-1]["identity"] == "others"
    audit.close()
    assert lines(path)[-1]["count"] == 9 * MAX_KINDS - 1


def test_of_many_the_first_few_have_a_line_each(audit: AuditLog, path: Path, clock: Clock) -> None:
    for i in range(1000):
        audit.note_few("joined", {"client": "bank"}, incarnation=i)
        audit.flush()
    audit.note_few("joined", {"client": "shop"}, incarnation=1000)
    assert [line["incarnation"] for line in lines(path)] == [*range(FEW), 1000]
    clock.now += 61
    audit.flush()
    assert lines(path)[FEW + 1 :] == [
        {
            "time": "2023-11-14T22:14:21.000+00:00",
            "event": "joined",
            "client": "bank",
            "count": 1000 - FEW,
            "since": "2023-11-14T22:13:20.000+00:00",
        }
    ]
    audit.note_few("joined", {"client": "bank"}, incarnation=1001)
    assert lines(path)[-1]["incarnation"] == 1001


def test_counts_are_summed_over_a_minute(audit: AuditLog, path: Path, clock: Clock) -> None:
    audit.count("served", {"peer": "shop"}, requests=1, ids_asked=10, ids_served=7)
    audit.count("served", {"peer": "shop"}, requests=1, ids_asked=5, ids_served=0)
    audit.count("served", {"peer": "telco"}, requests=1, ids_asked=2, ids_served=2)
    assert not path.exists()
    clock.now += 60
    audit.flush()
    found = {line["peer"]: line for line in lines(path)}
    assert found["shop"]["requests"] == 2
    assert (found["shop"]["ids_asked"], found["shop"]["ids_served"]) == (15, 7)
    assert found["telco"]["ids_asked"] == 2
    audit.close()
    assert len(lines(path)) == 2


def test_what_was_counted_is_not_lost_at_the_end(audit: AuditLog, path: Path) -> None:
    audit.count("predicted", {"caller": "plaintext"}, requests=1, ids=3)
    audit.close()
    assert lines(path)[0]["ids"] == 3


def test_a_clock_set_back_does_not_hold_counts_for_ever() -> None:
    tallies = Tallies()
    tallies.add("served", {"peer": "shop"}, {"requests": 1}, 1000.0)
    assert tallies.take_due(1001.0) == []
    assert len(tallies.take_due(10.0)) == 1


def test_full_files_are_kept_five_times(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "MAX_BYTES", 100)
    for i in range(9):
        audit.note("event", number=i)  # two do not fit into one file
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == ["audit.jsonl", *(f"audit.jsonl.{i}" for i in range(1, 6))]
    kept = [lines(path.with_name(name))[0]["number"] for name in names]
    assert kept == [8, 7, 6, 5, 4, 3]


def test_a_path_that_cannot_be_written_is_told_once_and_disturbs_nobody(
    path: Path, audit: AuditLog, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            audit.note("event")
    assert len(caplog.records) == 1
    path.rmdir()
    audit.note("event", number=5)
    assert [(line["event"], line.get("count")) for line in lines(path)] == [
        ("lost", 5),
        ("event", None),
    ]


def test_a_full_disk_leaves_no_half_line(
    path: Path, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.note("event", number=1)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    audit.note("event", number=2)
    monkeypatch.undo()
    audit.note("event", number=3)
    assert [line.get("number") for line in lines(path)] == [1, None, 3]
