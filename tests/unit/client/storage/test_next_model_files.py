"""A model that is held back, on disk: what is kept beside it, and for how long."""

import pytest
from torch import nn

from laser_vfl.client.storage.state_directory import StateDirectory


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path)


def write(state, *runs):
    for run in runs:
        state.write_model(run, nn.Linear(1, 1), {"scores": None})


def held(state):
    return sorted(state.model_runs())


def test_beside_a_model_that_is_held_only_the_served_one_is_kept(state):
    for run in ("one", "two"):
        write(state, run)
        state.publish(run)
    assert held(state) == ["one", "two"]
    for run in ("three", "four"):
        write(state, run)
        state.keep_next(run, is_published=False)
        assert held(state) == sorted(["two", run])
    assert state.published_run == "two"
    assert StateDirectory(state.path).read_next() == ("four", False)
    state.keep_next("four", is_published=True)
    assert state.read_next() == ("four", True)
    state.publish("four")
    assert (held(state), state.read_next()) == (["four", "two"], None)


def test_a_run_under_way_loses_nothing_when_another_is_published(state):
    write(state, "one")
    state.publish("one")
    write(state, "two")
    state.keep_next("two", is_published=True)
    write(state, "three")
    (state.run_directory("three")).mkdir(parents=True)
    (state.run_directory("three") / "alignment.safetensors").touch()
    state.publish("two")
    assert held(state) == ["one", "three", "two"]


@pytest.mark.parametrize("how", ["publish", "forget"])
def test_a_note_that_is_removed_stays_so_after_a_crash(state, how, monkeypatch):
    write(state, "one")
    state.keep_next("one", is_published=True)
    left = []

    def sync(directory):
        left.append(sorted(path.name for path in directory.iterdir()))

    monkeypatch.setattr("laser_vfl.atomic_files.sync_directory", sync)
    if how == "publish":
        state.publish("one")
    else:
        state.forget_next()
    assert "next_model.json" not in left[-1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}', '{"run": "..", "is_published": 1}'])
def test_a_note_that_says_nothing_is_as_good_as_none(state, text):
    (state.path / "next_model.json").write_text(text)
    assert state.read_next() is None


def test_a_note_without_its_model_is_as_good_as_none(state):
    write(state, "one")
    state.publish("one")
    state.keep_next("gone", is_published=True)
    assert state.read_next() is None
    state.keep_next("one", is_published=True)
    assert state.read_next() is None, "it is served"
    state.forget_next()
