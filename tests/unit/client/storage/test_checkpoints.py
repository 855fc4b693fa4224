"""Checkpoints: whole or not at all, the newest that is right, and never in the way of training."""

import errno
import json
import logging
import threading
from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file

from laser_vfl import atomic_files as files
from laser_vfl.client.storage.checkpoint_writer import CheckpointWriter
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.core.errors import DataError, StateUnwritable, TrainingStopped


def tensors_of(step):
    return {
        "models.weight": torch.full((2, 3), float(step)),
        "optimizer.0.step": torch.tensor(float(step)),
        "optimizer.0.count": torch.tensor(step, dtype=torch.int64),
        "half": torch.arange(3, dtype=torch.bfloat16),
        "none": torch.zeros(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "flags": torch.tensor([True, False]),
        "random": torch.default_generator.get_state(),
    }


def assert_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def files_in(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def checkpoints(directory):
    """Three checkpoints that have been written."""
    checkpoints = Checkpoints(directory)
    for step in (20, 5, 100):
        checkpoints.write(step, tensors_of(step), {"generation": step // 5})
    return checkpoints


@pytest.fixture
def full_disk(monkeypatch):
    """Nothing can be made durable while the returned flag is set."""
    full = threading.Event()
    full.set()
    sync = files.os.fsync

    def fsync(descriptor):
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    return full


def test_a_checkpoint_is_read_as_it_was_written(checkpoints, directory):
    assert checkpoints.held == Checkpoints(directory).held == (5, 20, 100)
    for at_most, expected in ((None, 100), (100, 100), (99, 20), (20, 20), (7, 5)):
        step, tensors, info = Checkpoints(directory).load(at_most)
        assert (step, info) == (expected, {"generation": expected // 5})
        assert_tensors(tensors, tensors_of(expected))
    assert checkpoints.load(4) is None
    assert_tensors(load_file(directory / "20.safetensors"), tensors_of(20))


def test_without_a_directory_there_are_none(directory):
    checkpoints = Checkpoints(directory)
    assert checkpoints.held == ()
    assert checkpoints.load() is None
    checkpoints.keep([10])
    checkpoints.drop_after(0)
    assert not directory.exists()


def test_a_note_vouches_for_the_file(checkpoints, directory):
    note = json.loads((directory / "20.json").read_text())
    assert note["step"] == 20
    assert note["size"] == (directory / "20.safetensors").stat().st_size
    assert len(note["sha256"]) == 64


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: flip(d / "100.safetensors"),
        lambda d: (d / "100.safetensors").unlink(),
        lambda d: (d / "100.json").unlink(),
        lambda d: (d / "100.json").write_text("{"),
        lambda d: (d / "100.json").write_bytes(b"\xff"),
        lambda d: (d / "100.json").write_text("[" * 100_000),
        lambda d: (d / "100.json").write_text('{"version": 1, "step": 100, "info": {}}'),
        lambda d: (d / "20.json").replace(d / "100.json"),
    ],
    ids=["flip", "no tensors", "no note", "half", "bytes", "deep", "few", "another"],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(
    checkpoints, directory, caplog, damage
):
    damage(directory)
    step, tensors, _ = checkpoints.load()
    expected = 20 if (directory / "20.json").exists() else 5
    assert step == expected
    assert_tensors(tensors, tensors_of(expected))
    assert "100.safetensors cannot be used" in caplog.text
    assert "trying one before it" in caplog.text
    assert 100 not in checkpoints.held


@pytest.mark.parametrize("name", ["100.safetensors", "100.json"])
def test_half_a_checkpoint_is_not_held(checkpoints, directory, name):
    (directory / name).write_bytes((directory / name).read_bytes()[:-9])
    assert Checkpoints(directory).held == (5, 20)


def test_leftovers_and_strangers_do_not_count(checkpoints, directory):
    (directory / ".7.safetensors.tmp").write_bytes(b"half")
    (directory / "08.json").write_text("{}")
    (directory / "notes.txt").write_text("mine")
    again = Checkpoints(directory)
    assert again.held == (5, 20, 100)
    assert ".7.safetensors.tmp" not in files_in(directory)
    again.keep([1000])
    assert files_in(directory) == ["08.json", "notes.txt"]


def test_old_and_later_ones_are_removed_also_when_files_are_gone(checkpoints, directory):
    (directory / "5.json").unlink()
    checkpoints.keep([20, 100])
    assert checkpoints.held == (20, 100)
    (directory / "100.safetensors").unlink()
    checkpoints.drop_after(20)
    assert checkpoints.held == (20,)
    assert files_in(directory) == ["20.json", "20.safetensors"]


def test_one_that_cannot_be_removed_is_named(checkpoints, directory, caplog, monkeypatch):
    def unlink(self, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(type(directory), "unlink", unlink)
    checkpoints.keep([20, 100])
    assert "5.safetensors stays" in caplog.text
    assert "Read-only file system" in caplog.text
    assert checkpoints.held == (20, 100)


def test_a_full_disk_has_a_name_and_leaves_the_others(checkpoints, directory, full_disk):
    before = files_in(directory)
    with pytest.raises(TrainingStopped) as caught:
        checkpoints.write(200, tensors_of(200), {})
    assert caught.value.message == "200.safetensors cannot be written (No space left on device)"
    assert caught.value.where == str(directory)
    assert str(directory) in str(caught.value)
    assert files_in(directory) == before
    assert checkpoints.held == (5, 20, 100)
    assert checkpoints.load()[0] == 100


def test_a_directory_that_cannot_be_made_has_a_name(tmp_path):
    (tmp_path / "run").write_text("a file")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    with pytest.raises(StateUnwritable):
        checkpoints.write(1, tensors_of(1), {})


def test_what_the_format_does_not_know_is_refused(directory):
    with pytest.raises(DataError, match="complex64"):
        Checkpoints(directory).write(1, {"odd": torch.zeros(1, dtype=torch.complex64)}, {})


def test_a_checkpoint_is_replaced_by_a_newer_of_the_same_step(checkpoints):
    checkpoints.write(20, tensors_of(21), {"again": True})
    step, tensors, info = checkpoints.load(20)
    assert (step, info) == (20, {"again": True})
    assert_tensors(tensors, tensors_of(21))


class Slow(Checkpoints):
    """Writes when it is told to."""

    def __init__(self, directory):
        super().__init__(directory)
        self.go = threading.Event()

    def write(self, step, tensors, info):
        assert self.go.wait(30)
        super().write(step, tensors, info)


def test_training_does_not_wait_for_a_checkpoint(directory):
    checkpoints = Slow(directory)
    written = []
    with closing(CheckpointWriter(checkpoints, written.append)) as writer:
        assert writer.submit(10, tensors_of(10), {})
        assert writer.busy
        assert not writer.submit(20, tensors_of(20), {})
        checkpoints.go.set()
        writer.wait()
        assert written == [10]
        assert writer.submit(30, tensors_of(30), {})
    assert written == [10, 30]
    assert checkpoints.held == (10, 30)
    assert not writer.submit(40, tensors_of(40), {})
    writer.wait()
    writer.close()


def test_a_failed_checkpoint_is_reported_once(directory, full_disk, caplog):
    written = []
    with closing(CheckpointWriter(Checkpoints(directory), written.append)) as writer:

        def write(step):
            assert writer.submit(step, tensors_of(step), {})
            writer.wait()
            return len([r for r in caplog.records if r.levelno == logging.ERROR])

        assert [write(1), write(2)] == [1, 1]
        full_disk.clear()
        assert write(3) == 1
        full_disk.set()
        assert write(4) == 2
    assert written == [3]
    assert "1.safetensors cannot be written (No space left on device)" in caplog.text
    assert "training goes on" in caplog.text


def test_whatever_goes_wrong_in_writing_does_not_reach_training(directory, caplog):
    with closing(CheckpointWriter(Checkpoints(directory))) as writer:
        for step in (1, 2):
            assert writer.submit(step, {}, {"odd": object()})
            writer.wait()
    assert caplog.text.count("is not written (TypeError") == 1
    assert "Traceback" not in caplog.text
