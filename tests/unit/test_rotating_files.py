"""Files of lines are put away when they are full, and readers find all that is kept."""

import json
import threading

import pytest

from laser_vfl.client.storage import state_directory
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.local_federation import step_lines
from laser_vfl.rotating_files import NUM_OLD, all_files, make_room


def test_a_file_that_is_full_becomes_the_first_old_one(tmp_path):
    path = tmp_path / "lines"
    for number in range(9):
        make_room(path, 1, max_bytes=1)
        path.write_text(str(number))
    assert [file.read_text() for file in all_files(path)] == list("345678")
    assert len(list(tmp_path.iterdir())) == NUM_OLD + 1


def test_an_empty_file_and_none_stay(tmp_path):
    make_room(tmp_path / "lines", 10, max_bytes=1)
    (tmp_path / "lines").touch()
    make_room(tmp_path / "lines", 10, max_bytes=1)
    assert all_files(tmp_path / "lines") == [tmp_path / "lines"]


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(state_directory, "MAX_METRICS_BYTES", 100)
    return StateDirectory(tmp_path / "state")


def test_metrics_are_bounded_and_read_across_files(state):
    for step in range(1000):
        state.append_metrics({"step": step})
    path = state.path / "metrics.jsonl"
    assert sum(file.stat().st_size for file in all_files(path)) <= (NUM_OLD + 1) * 100
    found = [line["step"] for line in step_lines(path)]
    assert found == list(range(found[0], 1000)), "none is missing in between"
    assert len(found) > 20


def test_lines_of_several_threads_stay_whole(state):
    def write(name):
        for step in range(200):
            state.append_metrics({"name": name, "step": step})

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for file in all_files(state.path / "metrics.jsonl"):
        for line in file.read_text().splitlines():
            json.loads(line)
        assert file.stat().st_size <= 100
