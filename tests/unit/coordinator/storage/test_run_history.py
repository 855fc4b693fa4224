"""What the coordinator writes down of runs and alignments, and reads when it is started again."""

import json

from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.directives import RingMemberInfo
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.coordinator.storage import run_history as history_module
from laser_vfl.coordinator.storage.run_history import RunHistory
from laser_vfl.core.alignment_purpose import AlignmentPurpose


def test_the_history_has_the_seed(tmp_path):
    note = RunHistory(tmp_path, "").happened
    note("started", Run("run-1", ("a",), 42, {}), "")
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (line["run"], line["event"], line["seed"]) == ("run-1", "started", 42)


def test_the_history_tells_a_restarted_coordinator_who_took_part(tmp_path):
    history = RunHistory(tmp_path, "")
    note = history.happened
    assert history.members_of == {}
    ring = (RingMemberInfo("a", 1, "a:1"), RingMemberInfo("c", 2, "c:1"))
    note(
        "aligning",
        Alignment("run-1", AlignmentPurpose.RUN, "ecdh", "run-1", ring),
        "run, without b",
    )
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (line["alignment"], line["event"]) == ("run-1", "aligning")
    assert (line["members"], line["reason"]) == (["a", "c"], "run, without b")
    assert not {"run", "seed"} & line.keys()
    note("started", Run("run-1", ("a", "c"), 42, {}), "")
    note("aligning", Alignment("dry-2", AlignmentPurpose.DRY_RUN, "ecdh", "dry-2", ring), "dry run")
    with (tmp_path / "runs.jsonl").open("ab") as file:
        file.write(b'[]\n7\n{"run": "x"}\n{"run": "y", "members": 7}\n\xff\n{"run": "z", "mem')
    assert RunHistory(tmp_path, "").members_of == {"run-1": ("a", "c")}


def test_dry_runs_without_end_fill_no_disk_and_displace_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(history_module, "MAX_BYTES", 10_000)
    note = RunHistory(tmp_path, "").happened
    note("started", Run("run-0", ("a",), 1, {}), "")
    note("given up", Run("run-0", ("a",), 1, {}), "")
    note("finished", Run("run-1", ("a", "c"), 42, {}), "")
    note("finished", Run("run-2", ("a", "b"), 43, {}), "")
    ring = (RingMemberInfo("a", 1, "a:1"), RingMemberInfo("b", 2, "b:1"))
    for i in range(500):
        note(
            "refused",
            Alignment(f"dry-{i}", AlignmentPurpose.DRY_RUN, "ecdh", f"dry-{i}", ring),
            "x" * 300,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.jsonl", "runs.jsonl.1"]
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line.get("run") for line in lines[:3]] == ["run-1", "run-2", None]
    assert lines[-1]["alignment"] == "dry-499"
    assert RunHistory(tmp_path, "").members_of == {"run-1": ("a", "c"), "run-2": ("a", "b")}


def test_a_file_that_begins_is_on_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path, monkeypatch
):
    """With a disk that is full nothing is put away: the history goes on in the file that it has."""
    note = RunHistory(tmp_path, "").happened
    note("finished", Run("run-1", ("a", "c"), 42, {}), "")
    monkeypatch.setattr(history_module, "MAX_BYTES", 100)
    before = (tmp_path / "runs.jsonl").read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("laser_vfl.atomic_files.os.fsync", fail)
        note("finished", Run("run-2", ("a",), 43, {}), "")
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    note("finished", Run("run-3", ("a",), 44, {}), "")
    assert (tmp_path / "runs.jsonl.1").read_bytes() == before
    assert (tmp_path / "runs.jsonl").stat().st_mode & 0o777 == 0o600
    assert RunHistory(tmp_path, "").members_of == {"run-1": ("a", "c"), "run-3": ("a",)}


def test_a_coordinator_that_ends_while_it_begins_a_new_file_forgets_no_run(tmp_path):
    note = RunHistory(tmp_path, "").happened
    note("finished", Run("run-1", ("a", "c"), 42, {}), "")
    (tmp_path / "runs.jsonl").replace(tmp_path / "runs.jsonl.1")
    assert RunHistory(tmp_path, "").members_of == {"run-1": ("a", "c")}
    note("finished", Run("run-2", ("a",), 43, {}), "")
    assert RunHistory(tmp_path, "").members_of == {"run-1": ("a", "c"), "run-2": ("a",)}


def test_of_many_finished_runs_the_last_go_over(tmp_path, monkeypatch):
    monkeypatch.setattr(history_module, "MAX_BYTES", 2_000)
    monkeypatch.setattr(history_module, "MAX_KEPT", 3)
    note = RunHistory(tmp_path, "").happened
    for i in range(200):
        note("finished", Run(f"run-{i}", ("a",), i, {}), "")
    found = RunHistory(tmp_path, "").members_of
    assert list(found)[-3:] == ["run-197", "run-198", "run-199"]
    assert len(found) < 100
