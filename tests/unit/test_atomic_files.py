"""Files that are replaced: whole or not at all, private where needed, without leftovers."""

import os
from pathlib import Path

import pytest

from laser_vfl.atomic_files import (
    NewFile,
    remove_file,
    remove_leftovers,
    replace_file,
    replace_files,
    replace_link,
    replacing,
    stamp,
)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_has_its_parts_and_its_mode(tmp_path):
    path = tmp_path / "key"
    replace_file(path, b"old")
    before = stamp(path)
    replace_file(path, b"ne", memoryview(b"w"), mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert stamp(path) != before
    assert names_in(tmp_path) == ["key"]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "table"
    replace_file(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:  # noqa: PT012
        temporary.write_bytes(b"half")
        raise RuntimeError

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_files([NewFile(path, [b"new"]), NewFile(tmp_path / "other", [b"new"])])
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["table"]


def test_a_file_that_is_written_by_path_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "table"
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    with pytest.raises(IsADirectoryError), replacing(tmp_path):
        pass
    assert names_in(tmp_path) == ["table"]


def test_a_group_that_could_read_a_file_still_can(tmp_path):
    path = tmp_path / "bank.key"
    replace_files([NewFile(path, [b"old"], 0o600, keeps_readers=True)])
    path.chmod(0o640)
    replace_files([NewFile(path, [b"new"], 0o600, keeps_readers=True)])
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_is_replaced_and_leftovers_go(tmp_path):
    for target in ("one", "two"):
        replace_link(tmp_path / "model", tmp_path / target)
    assert (tmp_path / "model").readlink() == tmp_path / "two"
    (tmp_path / ".model.7.tmp").touch()
    remove_leftovers(tmp_path)
    assert names_in(tmp_path) == ["model"]


class Disk:
    """What was synced, and which names were there then: files by theirs, a directory by its."""

    def __init__(self, monkeypatch):
        self.synced = []
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.synced.append((path.name, names_in(path) if path.is_dir() else None))
        self._sync(descriptor)


def test_a_file_that_is_put_away_is_there_when_the_directory_is_synced(tmp_path, monkeypatch):
    path, old = tmp_path / "log", tmp_path / "log.1"
    replace_file(path, b"one")
    for content in (b"two", b"three"):
        disk = Disk(monkeypatch)
        replace_files([NewFile(path, [content], put_away=old)])
        assert [name for name, _ in disk.synced] == [f".log.{os.getpid()}.tmp", tmp_path.name]
        assert disk.synced[-1][1] == ["log", "log.1"]
    assert (path.read_bytes(), old.read_bytes()) == (b"three", b"two")


def test_a_file_that_is_removed_stays_so(tmp_path, monkeypatch):
    replace_file(tmp_path / "note", b"")
    disk = Disk(monkeypatch)
    remove_file(tmp_path / "note")
    assert disk.synced == [(tmp_path.name, [])]
    remove_file(tmp_path / "note")
    assert len(disk.synced) == 1, "there was nothing to remove"


def test_what_is_not_there_has_no_stamp(tmp_path):
    assert stamp(tmp_path / "nothing") is None
