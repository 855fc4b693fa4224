"""What of a run is on disk: where it goes on from, and what becomes of other checkpoints."""

from types import SimpleNamespace

import pytest
import torch

from laser_vfl.client import work as work_module
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.checkpoints import Checkpoints
from laser_vfl.client.progress import Progress
from laser_vfl.client.run_record import RunRecord
from laser_vfl.client.work import Work
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.settings import TrainingSettings

RUN = "0" * 32
SETTINGS = TrainingSettings(representation_dim=4, batch_size=4, epochs=100)


class Learner:
    """Has one number, by which its state is known."""

    device = torch.device("cpu")

    def __init__(self, number=0.0):
        self.number = number

    def state(self):
        return {"number": torch.tensor(self.number)}

    def load_state(self, tensors):
        self.number = float(tensors["number"])


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A run of 400 steps, of which nothing is done."""
    monkeypatch.setattr(work_module, "begin_evaluation", lambda *_: None)
    monkeypatch.setattr(work_module, "budget", lambda *_: None)
    groups = ClientAlignment((Group(1, 16),), {0: list(range(16))})
    record = RunRecord(RUN, ("bank",), "ecdh", SETTINGS, (), {"train": groups, "test": groups}, "")
    config = SimpleNamespace(name="bank", privacy=None)
    work = Work(config, None, record, Learner, StateDirectory(tmp_path), None, Progress())
    yield work
    work.close()


@pytest.fixture
def checkpoints(work):
    found = work._checkpoints
    for step in (100, 200, 300):
        found.write(step, Learner(float(step)).state(), {})
    return found


@pytest.mark.parametrize(
    ("at_most", "step", "left"),
    [
        (None, 300, (100, 200, 300)),
        (250, 200, (100, 200)),
        (100, 100, (100,)),
        (50, 0, ()),
        (0, 0, ()),
    ],
)
def test_what_is_later_than_where_a_run_goes_on_is_gone(at_most, step, left, work, checkpoints):
    """Or it would crowd out what is written next, and be taken for it."""
    work.load(at_most)
    assert work.next_step == step
    assert work._learner.number == step
    assert work._progress.checkpoints == Checkpoints(checkpoints.directory).held == left


def test_a_checkpoint_that_is_there_is_not_written_again(work, checkpoints, monkeypatch):
    """A disk that fills up then, or a kill, would leave none of that step."""
    work.load()

    def write(*_):
        pytest.fail("it was written again")

    monkeypatch.setattr(checkpoints, "write", write)
    work.save()
    assert checkpoints.held == (100, 200, 300)


def test_one_that_is_not_there_is_written(work, checkpoints):
    work.load(200)
    work._progress.next_step = 207
    work.save()
    assert checkpoints.held == (100, 200, 207)
