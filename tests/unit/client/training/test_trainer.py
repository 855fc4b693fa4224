"""What of a run is on disk: where it goes on from, and what becomes of other checkpoints."""

from types import SimpleNamespace

import pytest
import torch

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.training import trainer as work_module
from laser_vfl.client.training.trainer import Trainer
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.training_settings import TrainingSettings

RUN = "0" * 32
SETTINGS = TrainingSettings(representation_dim=4, batch_size=4, epochs=100)


class Learner:
    """Has one number, by which its state is known."""

    device = torch.device("cpu")
    context = SimpleNamespace(client=0)
    method = Laser()

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
    config = SimpleNamespace(
        name="bank", privacy=None, threads="auto", own_address="127.0.0.1:7001"
    )
    state = StateDirectory(tmp_path)
    state.run_directory(RUN).mkdir(parents=True)
    work = Trainer(config, None, record, Learner, state, None, Progress(), ClientMetrics())
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
    work._progress.reached(207)
    work.save()
    assert checkpoints.held == (100, 200, 207)


class Planner(Learner):
    """Has something to do in each step."""

    def plan(self, *_):
        return object()


def view_from(next_step):
    return SimpleNamespace(my_next_step=next_step, addresses={}, peers=(), generation=1)


def test_a_coordinator_cannot_have_a_run_begin_after_its_end(work):
    work.is_loaded = True
    end = work.num_training_steps + len(work._tests)
    with pytest.raises(ContractError, match=f"step {end + 1} of a run"):
        work.run(view_from(end + 1), None)


def test_a_run_without_a_step_of_ones_own_makes_no_model(work, monkeypatch):
    """A coordinator could have all others do them, and so replace a model that is served."""
    monkeypatch.setattr(work, "_learner", Planner())
    work._log.loaded(0)
    work._progress.reached(work.num_training_steps)
    with pytest.raises(DataError, match="has not learnt anything"):
        work._write()
    work._log.applied(3, 1, 1)
    work._check_learnt()
    work._log.loaded(0, 2)
    with pytest.raises(DataError, match="has not learnt anything"):
        work._check_learnt()


def test_steps_that_are_done_again_are_charged_again(work, monkeypatch):
    """A coordinator may say `resume: 0` in each view, and have all of the run come once more."""
    charged = []
    monkeypatch.setattr(work, "_charge_again", charged.append)
    monkeypatch.setattr(work, "_train", lambda *_: None)
    monkeypatch.setattr(work, "_write", lambda: None)
    monkeypatch.setattr(work, "_block", SimpleNamespace(test=None))
    monkeypatch.setattr(work_module, "ExchangeFormat", SimpleNamespace(of=lambda _: None))
    monkeypatch.setattr(work_module, "PeerTransport", lambda *_: None)
    threads = torch.get_num_threads()
    try:
        work.load()
        work.run(view_from(0), None)
        assert charged == []
        work._at_step(120)
        work.load(0)
        work.run(view_from(0), None)
        assert charged == [32], "30 epochs of four steps, and what stood half-way"
        work._progress.reached(50)
        work.run(view_from(60), None)
        assert charged == [32], "nothing was done again"
    finally:
        torch.set_num_threads(threads)


def test_a_client_that_comes_back_too_late_takes_what_it_has(work, checkpoints, monkeypatch):
    """No view has told it where anybody is, itself included."""
    written = []
    monkeypatch.setattr(work, "_block", SimpleNamespace(test=None))
    monkeypatch.setattr(work, "_write", lambda: written.append(work.next_step))
    threads = torch.get_num_threads()
    try:
        work.load()
        work.finish_alone()
    finally:
        torch.set_num_threads(threads)
    assert written == [300]
