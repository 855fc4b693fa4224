"""What is private stays so whatever the umask, and a secret that others can read is none."""

import json
import logging
import os
import sqlite3
import stat

import pytest
from torch import nn

from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.storage.step_log import StepLog
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.client.tables.table_listing import Keys
from laser_vfl.coordinator.daemon import _leave_note
from laser_vfl.coordinator.storage import run_history
from laser_vfl.coordinator.storage.database import Store
from laser_vfl.coordinator.storage.run_history import RunHistory
from laser_vfl.core.errors import IdentityError
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.private_files import keep_private, require_private
from tests.support.data.client_people import pseudonym_tables


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def assert_private(directory, *, at_least):
    found = [path for path in directory.rglob("*") if not path.is_symlink()]
    assert len(found) >= at_least, found
    wrong = {
        str(path.relative_to(directory.parent)): oct(mode_of(path))
        for path in (directory, *found)
        if mode_of(path) != (0o700 if path.is_dir() else 0o600)
    }
    assert not wrong


def test_what_a_client_leaves_is_private(tmp_path):
    path = tmp_path / "above" / "state"
    state = StateDirectory(path)
    with state.held():
        key = state.own_key()
        state.write_model("run-1", nn.Linear(1, 1), {"scores": {}})
        state.publish("run-1")
        state.write_listening(listen="a")
        state.write_addresses({"shop": "a"})
        state.append_metrics({"a": 1})
        state.check_room(1)
        PseudonymStore(state).write(pseudonym_tables([["ada"]], run="run-1")[0])
        Checkpoints(state.run_directory("run-2") / "checkpoints").write(1, {}, {})
        StepLog(state.run_directory("run-2") / "steps.log").close()
        ErasureList(path, Keys(key, key), "trial").add(["ada"])
        AlignmentLedger(path / "alignments.json", 10).note()
        AuditLog(path / "audit.jsonl").note("started")
    assert_private(path, at_least=20)
    assert mode_of(path.parent) == 0o700


def test_what_a_coordinator_leaves_is_private(tmp_path, monkeypatch):
    path = tmp_path / "state"
    history = RunHistory(path, "state")
    store = Store(path)
    store.save("print", {"a": 1})
    assert (path / "coordinator.sqlite3-wal").exists()
    _leave_note(path, "a", "b")
    monkeypatch.setattr(run_history, "MAX_BYTES", 10)
    for _ in range(3):
        run_history._append(history._path, json.dumps({"run": "x", "event": "finished"}) + "\n")
    assert_private(path, at_least=5)
    store.close()


def test_another_process_that_opens_the_database_changes_no_mode(tmp_path):
    """SQLite gives -wal and -shm the mode of the database."""
    store = Store(tmp_path / "state")
    store.save("print", {"a": 1})
    store.close()
    with sqlite3.connect(tmp_path / "state" / "coordinator.sqlite3") as reader:
        reader.execute("SELECT * FROM document").fetchall()
        reader.execute("CREATE TABLE more (a)")
    assert_private(tmp_path / "state", at_least=1)
    reader.close()


def wide_directory(path):
    """A state directory as an earlier release made it."""
    (path / "models" / "run-1").mkdir(parents=True)
    (path / "models" / "run-1" / "manifest.json").write_text("{}")
    (path / "model").symlink_to("models/run-1")
    outside = path.parent / "outside"
    outside.write_text("")
    (path / "elsewhere").symlink_to(outside)
    for child in (path, outside, *path.rglob("*")):
        if not child.is_symlink():
            child.chmod(0o755 if child.is_dir() else 0o644)
    return outside


def test_what_an_earlier_release_has_left_is_made_private(tmp_path, caplog):
    outside = wide_directory(tmp_path / "state")
    caplog.set_level(logging.INFO)
    keep_private(tmp_path / "state")
    assert_private(tmp_path / "state", at_least=3)
    assert mode_of(outside) == 0o644, "a link is not followed"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "others had rights to 4 of its files and directories" in record.getMessage()
    keep_private(tmp_path / "state")
    assert len(caplog.records) == 1


def test_nobody_could_come_in_so_nobody_is_warned(tmp_path, caplog):
    wide_directory(tmp_path / "state")
    (tmp_path / "state").chmod(0o700)
    caplog.set_level(logging.INFO)
    keep_private(tmp_path / "state")
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert_private(tmp_path / "state", at_least=3)


def test_what_belongs_to_others_is_left_and_named(tmp_path, caplog, monkeypatch):
    wide_directory(tmp_path / "state")
    monkeypatch.setattr("laser_vfl.private_files.os.geteuid", lambda: 12345)
    keep_private(tmp_path / "state")
    assert mode_of(tmp_path / "state") == 0o755
    assert "is not this daemon's own" in caplog.text


def test_a_directory_for_everybody_is_left_alone(tmp_path, caplog):
    wide_directory(tmp_path / "state")
    (tmp_path / "state").chmod(0o1777)
    keep_private(tmp_path / "state")
    assert mode_of(tmp_path / "state") == 0o1777
    assert mode_of(tmp_path / "state" / "models") == 0o755
    assert "make a directory for it" in caplog.text


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.touch()
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640, 0o700])
def test_a_secret_for_its_owner_or_read_by_its_group_will_do(secret, mode):
    secret.chmod(mode)
    require_private(secret, IdentityError)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o602, 0o601, 0o444])
def test_a_secret_that_others_have_is_none(secret, mode):
    secret.chmod(mode)
    with pytest.raises(IdentityError, match="others than its owner") as refused:
        require_private(secret, IdentityError)
    assert refused.value.hint == f"chmod 600 {secret}"


@pytest.mark.parametrize(
    ("owner", "group", "mode", "is_good"),
    [
        (0, 10001, 0o440, True),  # a Secret of Kubernetes, fsGroup 10001
        (0, 0, 0o400, True),
        (10001, 10001, 0o600, True),
        (1000, 10001, 0o640, True),  # kept by somebody who lets the daemon's group read it
        (1000, 1000, 0o640, False),
        (1000, 10001, 0o600, False),
    ],
)
def test_whose_a_secret_may_be(monkeypatch, owner, group, mode, is_good):
    me = "laser_vfl.private_files.os"
    monkeypatch.setattr(f"{me}.geteuid", lambda: 10001)
    monkeypatch.setattr(f"{me}.getegid", lambda: 10001)
    monkeypatch.setattr(f"{me}.getgroups", lambda: [10001, 5])

    class Path:
        def stat(self):
            return os.stat_result((0o100000 | mode, 1, 1, 1, owner, group, 0, 0, 0, 0))

    if is_good:
        require_private(Path(), IdentityError)
    else:
        with pytest.raises(IdentityError, match="belongs to another user"):
            require_private(Path(), IdentityError)
