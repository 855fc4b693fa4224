"""What a published model takes from its manifest: never the name of code."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from laser_vfl.client.config import ModelConfig
from laser_vfl.client.own_models import NO_MODELS, OwnModels, models_of_manifest
from laser_vfl.client.run.resumable_run import ResumableRun
from laser_vfl.client.serving.models.published_model import load_published
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.core.errors import DataError

OWN = "tests.support.data.own_models:batch_norm"
CONFIG = ModelConfig(
    representation=OWN,
    representation_options={"width": 8, "deep": True, "seed": None},
    fusion="tests.support.data.own_models:dropout_head",
)


def stored(config=CONFIG, **changes):
    """What a manifest of a client with this configuration holds."""
    kept = json.loads(json.dumps(NO_MODELS.left_out_of(config)))
    return kept | changes


def taken(manifest, config=CONFIG, own=NO_MODELS, *, has_head=True):
    return models_of_manifest(manifest, config, own, has_head=has_head)


def test_models_as_configured_are_taken():
    found = taken(stored())
    assert found["representation"] == OWN
    assert found["representation_options"] == CONFIG.representation_options
    assert found["fusion"] == CONFIG.fusion


def test_built_in_models_are_the_manifests():
    manifest = stored(ModelConfig(hidden=[3], fusion="mlp", fusion_options={"hidden": [5]}))
    found = taken(manifest)
    assert found == {
        "representation": "mlp",
        "representation_options": {},
        "hidden": [3],
        "fusion": "mlp",
        "fusion_options": {"hidden": [5]},
    }


@pytest.mark.parametrize("part", ["representation", "fusion"])
@pytest.mark.parametrize("name", ["torch.hub:load", "os:system", ":", [":"], 7, {"mlp": ":"}])
@pytest.mark.parametrize("config", [CONFIG, ModelConfig()])
def test_a_name_that_is_not_the_configurations_is_refused(part, name, config):
    with pytest.raises(DataError) as caught:
        taken(stored(config, **{part: name}), config)
    assert part in caught.value.message


@pytest.mark.parametrize(
    "options",
    [{}, {"width": 9}, {"width": 8.0}, {"width": True}, {"width": 8, "more": 1}, None, [], "width"],
)
def test_other_options_are_refused(options):
    manifest = stored()
    if isinstance(options, dict) and options:
        options = manifest["representation_options"] | options
    with pytest.raises(DataError, match="has other options for the representation"):
        taken(manifest | {"representation_options": options})


def test_a_head_that_is_not_built_may_differ_and_is_left_out():
    found = taken(stored(fusion="os:system"), has_head=False)
    assert "fusion" not in found


def test_a_model_given_in_python_goes_before_any_name():
    own = OwnModels(representation=nn.Linear(1, 1))
    assert taken(stored(representation=None), own=own)["representation"] is None
    taken(stored(representation="os:system"), own=own)  # it is not looked at
    with pytest.raises(DataError, match="given in Python; give it again"):
        taken(stored(representation=None))


def test_a_manifest_of_another_run_is_refused(tmp_path):
    state = StateDirectory(tmp_path)
    state.write_model("run-1", nn.Linear(1, 1), {"run": "run-2"})
    config = SimpleNamespace()
    with pytest.raises(DataError, match="manifest is of another run"):
        load_published(config, state, "run-1", NO_MODELS, torch.device("cpu"))


def test_a_record_of_another_run_is_not_come_back_to(tmp_path, monkeypatch, caplog):
    """It says where checkpoints are written."""
    state = StateDirectory(tmp_path)
    directory = state.run_directory("run-1")
    directory.mkdir(parents=True)
    (directory / "alignment.safetensors").touch()
    record = SimpleNamespace(run="../../elsewhere")
    monkeypatch.setattr("laser_vfl.client.run.resumable_run.read_record", lambda _: record)
    resumable = ResumableRun(state)
    assert resumable.run == "run-1"
    assert asyncio.run(resumable.read()) is None
    assert resumable.run == ""
    assert "is of another run" in caplog.text
