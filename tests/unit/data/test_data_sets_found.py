"""Finding the files of a data set, and what is said when they are missing or wrong."""

from pathlib import Path

import pytest

from laser_vfl.core.errors import ConfigError, DataError, ExitCode
from laser_vfl.data.sets import SET_NAMES, SOURCES, load_set
from laser_vfl.data.sets.catalogue import VARIABLE, data_root


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_directory_is_given_or_in_the_environment_or_in_the_usual_place(tmp_path, monkeypatch):
    assert data_root() is None
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_root() == Path("../shared/data")
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    assert data_root() == tmp_path / "mine"
    assert data_root(tmp_path) == tmp_path


def test_a_directory_that_is_not_there_is_told_with_who_named_it(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no such directory; correct --data"):
        data_root(tmp_path / "gone")
    monkeypatch.setenv(VARIABLE, "gone")
    with pytest.raises(DataError, match=f"correct {VARIABLE}"):
        data_root()


@pytest.mark.parametrize("name", [name for name in SET_NAMES if name != "digits"])
@pytest.mark.parametrize("named", [False, True])
def test_missing_files_are_told_with_where_to_get_them(name, named, tmp_path):
    source = next(source for source in SOURCES if source.name == name)
    with pytest.raises(DataError) as caught:
        load_set(name, tmp_path if named else None)
    text = str(caught.value)
    assert caught.value.exit_code == ExitCode.DATA
    assert source.get_it in text
    assert source.compact in text
    assert "--data" in text
    assert VARIABLE in text
    assert (str(tmp_path) in text) == named


def test_an_unknown_set_is_told_with_the_known_ones():
    with pytest.raises(ConfigError, match='no data set "mnist"; use one of hapt, credit'):
        load_set("mnist")


@pytest.mark.parametrize("source", [s for s in SOURCES if s.compact], ids=lambda s: s.name)
def test_a_compact_file_with_another_checksum_is_refused(source, tmp_path):
    path = tmp_path / source.compact
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"its SHA256 is .*, expected .*get it again") as caught:
        load_set(source.name, tmp_path)
    assert caught.value.where == str(path)
