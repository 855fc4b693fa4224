"""What is kept of a run: enough to come back to it, and nothing of those that failed."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from laser_vfl.client.run.resumable_run import ResumableRun
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.methods.training_settings import TrainingSettings
from tests.support.data.client_people import pseudonym_tables

SETTINGS = TrainingSettings(representation_dim=8, batch_size=4, epochs=2, seed=1)


@pytest.fixture(autouse=True)
def digest(monkeypatch):
    monkeypatch.setattr("laser_vfl.client.run.resumable_run.data_digest", lambda block: "ab" * 32)


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path / "state")


def keep(resumable, run):
    tables = {
        "train": ClientAlignment((Group(1, 1),), {0: np.array([0])}),
        "test": ClientAlignment((), {}),
    }
    aligned = SimpleNamespace(
        call=SimpleNamespace(id=run),
        scheme="ecdh",
        tables=tables,
        pseudonyms=pseudonym_tables([["ada"]], run=run)[0],
    )
    asyncio.run(resumable.keep(aligned, SETTINGS, ("bank", "shop"), None))


def scalars(state):
    return sorted(path.parent.name for path in state.path.rglob("naming.safetensors"))


def served(state, run):
    """Have the model of a run served, with its pseudonyms."""
    keep(resumable := ResumableRun(state), run)
    state.write_model(run, nn.Linear(1, 1), {"scores": None})
    state.publish(run)
    asyncio.run(resumable.end())


def test_a_member_that_aligns_and_leaves_a_hundred_times_costs_one_scalar(state):
    served(state, "run-0")
    resumable = ResumableRun(state)
    for number in range(1, 101):
        keep(resumable, f"run-{number}")
    assert scalars(state) == ["run-0", "run-100"]
    asyncio.run(resumable.end())
    assert scalars(state) == ["run-0"]
    assert PseudonymStore(state).read("run-0") is not None
    assert not list((state.path / "runs").glob("*/alignment.safetensors"))


def test_a_client_that_crashed_comes_back_with_its_scalar(state):
    keep(ResumableRun(state), "run-1")
    back = ResumableRun(StateDirectory(state.path))
    assert back.run == "run-1"
    assert asyncio.run(back.read()).run == "run-1"
    assert scalars(state) == ["run-1"]
    back.decline()  # it may have been a mistake
    assert scalars(state) == ["run-1"]
    assert ResumableRun(state).run == "run-1"


def test_what_earlier_releases_have_left_goes_at_the_start(state):
    served(state, "run-1")
    keep(ResumableRun(state), "run-9")
    for run in ("run-2", "run-3"):
        PseudonymStore(state).write(pseudonym_tables([["ada"]], run=run)[0])
    ResumableRun(state)
    assert scalars(state) == ["run-1", "run-9"]


def test_a_run_that_is_lost_after_its_model_was_written_can_still_be_asked_for(state):
    keep(resumable := ResumableRun(state), "run-1")
    state.write_model("run-1", nn.Linear(1, 1), {"scores": None})
    asyncio.run(resumable.end())
    assert scalars(state) == ["run-1"]
