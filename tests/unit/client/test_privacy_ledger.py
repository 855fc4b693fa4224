"""What noise has spent in all runs: counted before a run, once each, and never forgotten."""

import hashlib
import json
from pathlib import Path

import pytest

from laser_vfl.client import privacy_ledger
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.privacy_budget import epsilon, epsilon_of
from laser_vfl.client.privacy_ledger import FILE_NAME, PrivacyLedger
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import (
    ConfigError,
    DataError,
    MismatchError,
    StateUnwritable,
    TrainingStopped,
)
from laser_vfl.methods.training_settings import TrainingSettings

NOISE, DELTA = 20.0, 1e-5


def config_of(tmp_path: Path, **privacy: object) -> ClientConfig:
    path = tmp_path / "bank.yaml"
    content = {
        "federation": "churn",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "state",
        "data": {"train": "bank.csv", "id": "id"},
        "privacy": {"clip": 1.0, "noise": NOISE, **privacy},
    }
    path.write_text(json.dumps(content))
    (tmp_path / "state").mkdir(exist_ok=True)
    return load_config(path, ClientConfig)


def ledger_of(tmp_path: Path, **privacy: object) -> PrivacyLedger:
    return PrivacyLedger(config_of(tmp_path, **privacy))


def settings(epochs: int = 20, seed: int = 3) -> TrainingSettings:
    return TrainingSettings(representation_dim=8, batch_size=4, epochs=epochs, seed=seed)


def test_runs_add_up_as_one_long_run_would(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert ledger.epsilon_spent() == 0.0
    ledger.charge("run-1", settings(), is_new=True)
    assert ledger.epsilon_spent() == epsilon(NOISE, 21, DELTA)
    ledger.charge("run-2", settings(epochs=5), is_new=True)
    assert ledger.epsilon_spent() == epsilon(NOISE, 27, DELTA)
    assert ledger.epsilon_spent() < epsilon(NOISE, 21, DELTA) + epsilon(NOISE, 6, DELTA)


def test_what_is_done_again_counts_as_more_releases(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.charge("run-1", settings(), is_new=True)
    ledger.charge_again("run-1", settings(), 5)
    assert ledger_of(tmp_path).epsilon_spent() == epsilon(NOISE, 26, DELTA)
    assert (ledger.num_runs, ledger.has("run-1")) == (1, True)
    most = epsilon(NOISE, 30, DELTA)
    ledger = ledger_of(tmp_path, max_epsilon=most)
    ledger.charge_again("run-1", settings(), 4)
    with pytest.raises(TrainingStopped, match="from an earlier step"):
        ledger.charge_again("run-1", settings(), 1)
    assert ledger_of(tmp_path).epsilon_spent() == most


def test_runs_with_other_noise_add_up_too(tmp_path: Path) -> None:
    ledger_of(tmp_path).charge("run-1", settings(), is_new=True)
    ledger = ledger_of(tmp_path, noise=10.0)
    ledger.charge("run-2", settings(), is_new=True)
    both = epsilon_of({NOISE: 21, 10.0: 21}, DELTA)
    assert ledger.epsilon_spent() == both
    # One release with noise 10 is as much as four with noise 20.
    assert both == pytest.approx(epsilon(NOISE, 21 + 4 * 21, DELTA), rel=1e-9)


def test_another_process_goes_on_counting(tmp_path: Path) -> None:
    ledger_of(tmp_path).charge("run-1", settings(), is_new=True)
    ledger = ledger_of(tmp_path)
    assert ledger.num_runs == 1
    assert ledger.has("run-1")
    assert not ledger.has("")
    assert (tmp_path / "state" / FILE_NAME).stat().st_mode & 0o077 == 0


def test_to_come_back_to_a_run_counts_once(tmp_path: Path) -> None:
    once = epsilon(NOISE, 21, DELTA)
    ledger = ledger_of(tmp_path, max_epsilon=once * 1.01)
    ledger.charge("run-1", settings(), is_new=True)
    for again in (ledger, ledger_of(tmp_path, max_epsilon=once * 1.01)):
        again.charge("run-1", settings(), is_new=False)
        assert again.epsilon_spent() == once


@pytest.mark.parametrize(
    ("said", "noise", "is_new"),
    [
        (settings(seed=4), NOISE, False),
        (settings(), 10.0, False),
        (settings(epochs=21), NOISE, False),
        (settings(), NOISE, True),
    ],
    ids=["another seed", "less noise", "more epochs", "aligned anew"],
)
def test_the_name_of_a_run_is_not_enough_to_be_the_same(
    said: TrainingSettings, noise: float, is_new: bool, tmp_path: Path
) -> None:
    ledger_of(tmp_path).charge("run-1", settings(), is_new=True)
    ledger = ledger_of(tmp_path, noise=noise)
    before = ledger.epsilon_spent()
    ledger.charge("run-1", said, is_new=is_new)
    assert ledger.epsilon_spent() > before
    tight = ledger_of(tmp_path, noise=noise, max_epsilon=before)
    with pytest.raises(TrainingStopped, match="requires at most"):
        tight.charge("run-2", said, is_new=is_new)


def test_a_run_that_would_pass_the_maximum_is_refused_and_not_counted(tmp_path: Path) -> None:
    most = epsilon(NOISE, 42, DELTA)
    ledger = ledger_of(tmp_path, max_epsilon=most)
    for run in ("run-1", "run-2"):
        ledger.check(settings())
        ledger.charge(run, settings(), is_new=True)
    before = (tmp_path / "state" / FILE_NAME).read_bytes()
    for refused in (
        lambda: ledger.check(settings(epochs=1)),
        lambda: ledger.charge("run-3", settings(epochs=1), is_new=True),
    ):
        with pytest.raises(TrainingStopped, match=r"\(runs so far: 2\) and would be") as error:
            refused()
        assert "bank.yaml:1:" in error.value.where
        assert error.value.where.endswith(": privacy.max_epsilon")
    assert (tmp_path / "state" / FILE_NAME).read_bytes() == before


def test_settings_that_no_client_could_meet_do_not_fit(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, max_epsilon=epsilon(NOISE, 20, DELTA))
    ledger.check_possible(settings(epochs=19))
    with pytest.raises(MismatchError, match=r"training\.epochs: 20, which with"):
        ledger.check_possible(settings(epochs=20))
    ledger_of(tmp_path).check_possible(settings(epochs=1000))


@pytest.mark.parametrize("how", ["cut", "empty", "a number changed", "not JSON", "of a fraction"])
def test_a_ledger_that_is_not_what_was_written_is_an_error_and_not_zero(
    how: str, tmp_path: Path
) -> None:
    ledger_of(tmp_path).charge("run-1", settings(), is_new=True)
    path = tmp_path / "state" / FILE_NAME
    content = path.read_bytes()
    damaged = {
        "cut": content[:-10],
        "empty": b"",
        "a number changed": content.replace(b'"num_releases": 21', b'"num_releases": 1'),
        "not JSON": b"\xff\xfe",
        "of a fraction": b'{"version": 1, "runs": [{"run": 3}], "sha256": ""}',
    }[how]
    assert damaged != content
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="nobody could say how much") as refused:
        ledger_of(tmp_path)
    assert refused.value.where == str(path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("change", [{"num_releases": 10**400}, {"seed": -1}, {"noise": 1e308}])
def test_charges_that_no_run_makes_are_an_error_although_they_are_vouched_for(
    change: dict[str, float], tmp_path: Path
) -> None:
    """Such numbers have no ε; a daemon must not end by an error of arithmetic."""
    charges = [{"run": "run-1", "seed": 3, "noise": NOISE, "num_releases": 21, **change}]
    digest = hashlib.sha256(json.dumps(charges, sort_keys=True).encode()).hexdigest()
    config = config_of(tmp_path)
    document = {"version": 1, "runs": charges, "sha256": digest}
    (tmp_path / "state" / FILE_NAME).write_text(json.dumps(document))
    with pytest.raises(DataError, match="nobody could say how much"):
        PrivacyLedger(config)


def test_what_cannot_be_read_is_an_error_too(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "state" / FILE_NAME).mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        PrivacyLedger(config)


def test_what_cannot_be_written_does_not_take_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_of(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise StateUnwritable("privacy_spent.json cannot be written (No space left on device)")

    monkeypatch.setattr(privacy_ledger, "replace", full)
    with pytest.raises(StateUnwritable):
        ledger.charge("run-1", settings(), is_new=True)
    assert not ledger.has("run-1")


def test_without_noise_nothing_is_counted_and_no_maximum_is_taken(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, noise=0.0)
    ledger.charge("run-1", settings(), is_new=True)
    assert not (tmp_path / "state" / FILE_NAME).exists()
    with pytest.raises(ConfigError, match="without noise"):
        ledger_of(tmp_path, noise=0.0, max_epsilon=1.0)


def test_many_runs_are_put_together_and_stay_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy_ledger, "MAX_RUNS", 6)
    ledger = ledger_of(tmp_path)
    for number in range(20):
        ledger.charge(f"run-{number}", settings(epochs=1), is_new=True)
        assert ledger_of(tmp_path).epsilon_spent() == epsilon(NOISE, 2 * number + 2, DELTA)
        assert ledger.has(f"run-{number}")
    assert ledger.num_runs <= 6
