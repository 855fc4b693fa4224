"""What a client keeps to itself: its key and its names, private, whole or not at all."""

import errno
import json
import os
import stat
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from laser_vfl.client.storage.state_directory import KEY_BYTES, StateDirectory, is_run_id
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.core.errors import ConfigError, DataError, StateUnwritable
from tests.support.data.client_people import ROSTER, digests_at, pseudonym_tables

IDS = (["ada", "bob", "cyd"], ["cyd", "dan", "ada"], ["eve"])


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path / "state")


@pytest.fixture
def pseudonyms(state):
    """A pseudonyms that has been written."""
    pseudonyms = pseudonym_tables(IDS)[1]
    PseudonymStore(state).write(pseudonyms)
    return pseudonyms


@pytest.fixture
def file(state, pseudonyms):
    return state.path / "models" / pseudonyms.run / "naming.safetensors"


def test_one_daemon_at_a_time(state):
    other = StateDirectory(state.path)
    refused = pytest.raises(ConfigError, match="another daemon uses the directory")
    with state.held(), refused, other.held(patience_s=0.1):
        pass
    with other.held(patience_s=0.0):
        pass


def test_a_daemon_that_is_about_to_end_is_waited_for(state):
    with ExitStack() as first:
        first.enter_context(state.held())
        threading.Timer(0.1, first.close).start()
        with StateDirectory(state.path).held():
            pass


def test_a_lock_that_cannot_be_opened_is_named(state):
    (state.path / "lock").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"), state.held():
        pass


def test_the_own_key_is_made_once_and_is_private(state):
    key = state.own_key()
    assert len(key) == KEY_BYTES
    assert mode_of(state.path / "own.key") == 0o600
    assert state.own_key() == key
    assert StateDirectory(state.path).own_key() == key


def test_every_client_has_a_key_of_its_own(tmp_path):
    keys = {StateDirectory(tmp_path / name).own_key() for name in ROSTER}
    assert len(keys) == len(ROSTER)


@pytest.mark.parametrize("damaged", [b"", b"short", bytes(KEY_BYTES + 1)])
def test_a_damaged_key_is_never_replaced(state, damaged):
    path = state.path / "own.key"
    path.write_bytes(damaged)
    with pytest.raises(DataError) as caught:
        state.own_key()
    assert f"has {len(damaged)} bytes, not {KEY_BYTES}" in caught.value.message
    assert caught.value.where == str(path)
    assert path.read_bytes() == damaged


def test_a_key_that_cannot_be_read_is_said_to_be(state):
    (state.path / "own.key").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        state.own_key()


def test_a_key_that_cannot_be_kept_is_an_error_for_people(state, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("laser_vfl.atomic_files.os.fsync", fail)
    with pytest.raises(StateUnwritable):
        state.own_key()


def test_names_are_read_as_they_were_written(state, pseudonyms):
    found = PseudonymStore(StateDirectory(state.path)).read("run-1")
    assert (found.id, found.run, found.members) == ("alignment-1", "run-1", ROSTER[:3])
    assert found.scalar == pseudonyms.scalar
    assert found.groups == pseudonyms.groups
    for array in ("digests", "points", "names"):
        assert np.array_equal(getattr(found, array), getattr(pseudonyms, array))
    for client, ids in enumerate(IDS):
        asked = digests_at("shop", ids)
        names, at = found.names_for(asked, client)
        expected, expected_at = pseudonyms.names_for(asked, client)
        assert (names, at.tolist()) == (expected, expected_at.tolist())
        assert np.array_equal(found.digests_of(names, client), pseudonyms.digests_of(names, client))


def test_names_of_nobody_are_read_as_they_were_written(state):
    (empty,) = pseudonym_tables([[]], run="run-2")
    PseudonymStore(state).write(empty)
    found = PseudonymStore(state).read("run-2")
    assert len(found.digests) == len(found.groups) == 0
    assert found.is_new(digests_at("bank", ["ada"])).all()


def test_names_have_a_scalar_and_are_private_also_when_written_again(state, pseudonyms, file):
    assert mode_of(file) == 0o600
    file.chmod(0o644)
    PseudonymStore(state).write(pseudonyms)
    assert mode_of(file) == 0o600
    assert [child.name for child in file.parent.iterdir()] == [file.name]


def test_names_are_no_pickle(file):
    with safe_open(file, framework="numpy") as opened:
        assert "scalar" in opened.keys()  # noqa: SIM118
    assert not file.read_bytes().startswith(b"\x80")


def test_a_run_without_names_has_none(state):
    assert PseudonymStore(state).read("run-9") is None


def test_names_of_another_run_are_not_taken(state, pseudonyms, file, tmp_path):
    """They say where they are written to when somebody is forgotten."""
    moved = state.path / "models" / "run-2" / file.name
    moved.parent.mkdir()
    moved.write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="cannot be used"):
        PseudonymStore(state).purge("run-2", lambda digests: np.ones(len(digests), dtype=bool))
    assert len(PseudonymStore(state).read("run-1").digests) == len(pseudonyms.digests)


@pytest.mark.parametrize("target", ["models/..", "..", "models/.", "../elsewhere/a b"])
def test_a_link_out_of_the_models_is_refused(state, target):
    (state.path / "model").symlink_to(target)
    with pytest.raises(DataError, match="which is no run"):
        _ = state.published_run


def test_a_newer_alignment_of_a_run_replaces_the_older(state, pseudonyms):
    newer = pseudonym_tables((["ada"], ["ada", "zoe"]), id="alignment-2")[1]
    PseudonymStore(state).write(newer)
    found = PseudonymStore(state).read("run-1")
    assert found.id == "alignment-2"
    assert len(found.digests) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"no such thing",
        lambda content: content[:40],
        lambda content: content[:-7],
        lambda content: b"\xff" * 8 + content[8:],
    ],
    ids=["empty", "text", "head only", "cut off", "length"],
)
def test_a_damaged_file_is_an_error_for_people(state, file, damage):
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match="cannot be used") as caught:
        PseudonymStore(state).read("run-1")
    assert "train again" in caught.value.hint


def without(name):
    return lambda arrays, metadata: arrays.pop(name)


def put(name, change):
    return lambda arrays, metadata: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    "damage",
    [
        without("scalar"),
        without("digests"),
        without("masks"),
        lambda arrays, metadata: metadata.pop("id"),
        lambda arrays, metadata: metadata.update(members="[1"),
        put("sizes", lambda sizes: sizes[:-1]),
        put("digests", lambda digests: digests[:, :31].copy()),
        put("digests", lambda digests: digests[:-1].copy()),
        put("digests", lambda digests: np.concatenate([digests, digests])),
        put("points", lambda points: points[:-1].copy()),
        put("points", lambda points: points[:, :31].copy()),
        put("scalar", lambda scalar: scalar[:-1].copy()),
        put("group", lambda group: group + 1000),
        put("place", lambda place: place[:-1].copy()),
    ],
    ids=[
        "no scalar",
        "no digests",
        "no masks",
        "no id",
        "members",
        "sizes",
        "narrow digests",
        "few digests",
        "many digests",
        "few points",
        "narrow points",
        "short scalar",
        "groups",
        "places",
    ],
)
def test_a_file_whose_parts_do_not_fit_is_an_error_for_people(state, file, damage):
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata()
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    damage(arrays, metadata)
    save_file(arrays, file, metadata)
    with pytest.raises(DataError, match="cannot be used"):
        PseudonymStore(state).read("run-1")


def test_where_the_daemon_listens_is_said_for_commands(state):
    first = {"listen": "127.0.0.1:7001", "predict": "127.0.0.1:7101", "metrics": "127.0.0.1:9464"}
    then = {"listen": "127.0.0.1:7002", "predict": "127.0.0.1:7102", "metrics": "127.0.0.1:9465"}
    state.write_listening(**first)
    state.write_listening(**then)
    assert json.loads((state.path / "listening.json").read_text()) == then


def test_ids_of_runs_are_names_of_directories():
    assert is_run_id("20260101-abc_DEF")
    for text in ("", ".", "..", "a/b", "a\n", "x" * 65, "é"):
        assert not is_run_id(text)


def test_room_for_an_alignment_is_checked_and_leaves_nothing(state):
    state.check_room(10_000)
    assert not list(state.path.glob(".room*"))


def test_a_full_disk_is_said_before_an_alignment(state, monkeypatch):
    def full(descriptor, offset, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StateUnwritable):
        state.check_room(10)
    assert not list(state.path.glob(".room*"))


def test_a_file_system_that_cannot_tell_is_no_reason_to_stay_out(state, monkeypatch):
    def unable(descriptor, offset, length):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unable)
    state.check_room(10)
