"""The settings of a federation: defaults, bounds, and what the paper's preset changes."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from laser_vfl.core.settings import PAPER_PRESET
from laser_vfl.methods.training_settings import TrainingSettings

REQUIRED = {"representation_dim": 32, "batch_size": 128, "epochs": 20}


def settings(**keys: object) -> TrainingSettings:
    return TrainingSettings.model_validate({**REQUIRED, **keys})


def test_defaults() -> None:
    got = settings()
    assert (got.batching, got.task_sampling, got.loss_scale) == (
        "mixed",
        "per_sample",
        "normalized",
    )
    assert (got.loss_divisor, got.subset_weight) == ("batch_size", "heads")
    assert (got.method, got.seed, got.wire_precision) == ("laser", 0, "float32")
    assert got.step_timeout_s == 60


def test_the_paper_preset_changes_five_defaults() -> None:
    default, paper = settings().model_dump(), settings(preset="paper").model_dump()
    assert {key for key in default if default[key] != paper[key]} == {*PAPER_PRESET, "preset"}
    assert {key: paper[key] for key in PAPER_PRESET} == PAPER_PRESET


def test_a_written_key_wins_over_the_preset() -> None:
    got = settings(preset="paper", batching="mixed", loss_divisor="batch_size")
    assert (got.batching, got.loss_divisor) == ("mixed", "batch_size")
    assert (got.task_sampling, got.loss_scale) == ("per_batch", "paper")


@pytest.mark.parametrize("keys", [{}, {"preset": "paper"}, {"preset": "paper", "seed": 2**63 - 1}])
def test_a_dump_validates_to_itself(keys: dict[str, object]) -> None:
    first = settings(**keys)
    again = TrainingSettings.model_validate(json.loads(json.dumps(first.model_dump())))
    assert again == first


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("representation_dim", 0),
        ("representation_dim", 65_537),
        ("batch_size", True),
        ("batch_size", "12"),
        ("batch_size", 1_000_001),
        ("epochs", 0),
        ("epochs", 2.0),
        ("seed", -1),
        ("seed", 2**63),
        ("step_timeout_s", 0),
        ("step_timeout_s", float("nan")),
        ("step_timeout_s", True),
        ("batching", "random"),
        ("method", "splitnn"),
        ("momentum", 0.9),
    ],
)
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        settings(**{key: value})


def test_they_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings().seed = 3


def test_the_coordinator_configuration_needs_no_torch() -> None:
    code = "import sys, laser_vfl.coordinator.config as c; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
