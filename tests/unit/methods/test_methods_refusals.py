"""Settings that a method cannot be used with are refused, in words that say what to do."""

from types import SimpleNamespace

import pytest
from methods_world import CLASSES

from laser_vfl.client.config import ModelConfig, PrivacyConfig
from laser_vfl.client.model_building import build_models
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.table_form import TableForm
from laser_vfl.methods.training_settings import TrainingSettings

TRAINING = {"representation_dim": 8, "batch_size": 16, "epochs": 2}


def coordinator(num_clients, **training):
    return CoordinatorConfig.model_validate(
        {
            "federation": "trial",
            "listen": "127.0.0.1:0",
            "state": "state",
            "clients": [f"client-{k}" for k in range(num_clients)],
            "training": {**TRAINING, **training},
        }
    )


def test_combinatorial_has_at_most_ten_clients():
    assert coordinator(10, method="combinatorial").training.method == "combinatorial"
    assert len(coordinator(11, method="plug").clients) == 11
    with pytest.raises(ValueError, match="11 clients would have 2047 predictors"):
        coordinator(11, method="combinatorial")


@pytest.mark.parametrize("method", ["local", "standard", "ensemble", "combinatorial", "plug"])
def test_only_laser_masks_gradients(method):
    assert coordinator(3, masked_gradients=True).training.masked_gradients
    with pytest.raises(ValueError, match=f"gradients are not masked with method: {method}"):
        coordinator(3, method=method, masked_gradients=True)


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("other", [{"masked_gradients": True}, {"method": "vfedtrans"}])
def test_what_has_to_be_exact_does_not_travel_as_small_integers(precision, other):
    assert coordinator(3, wire_precision=precision).training.rounds_rows
    with pytest.raises(ValueError, match=f"{precision}|must not be rounded"):
        coordinator(3, wire_precision=precision, **other)


def test_a_batch_of_combinatorial_rows_has_to_fit_into_a_frame():
    """Ten clients send each other 256 representations of each sample."""
    wide = {"representation_dim": 1024, "batch_size": 64}
    assert coordinator(10, **wide).training.batch_size == 64
    with pytest.raises(ValueError, match="with rows 262144 wide"):
        coordinator(10, method="combinatorial", **wide | {"batch_size": 65})


def models_of(method, *, clip=None, classes=CLASSES, width=8):
    settings = TrainingSettings.model_validate(
        {**TRAINING, "representation_dim": width, "method": method}
    )
    config = SimpleNamespace(
        model=ModelConfig(hidden=[4]),
        privacy=PrivacyConfig(clip=clip),
        representation_dim=None,
        where=lambda key: f"bank.yaml: {key}",
    )
    labels = SimpleNamespace(num_outputs=len(classes) or 1, classes=classes)
    encoding = SimpleNamespace(input_shape=(3,), form=TableForm.of_numbers(3))
    block = SimpleNamespace(
        encoding=encoding,
        labels=labels,
        train=SimpleNamespace(targets=None, label_weights=None),
        label_noise=None,
    )
    return build_models(config, block, FederationContext(0, 2, 0b11, settings))


@pytest.mark.parametrize("method", ["local", "ensemble", "combinatorial"])
def test_bounds_are_for_methods_that_release_one_representation(method):
    models_of(method)
    with pytest.raises(MismatchError, match="one representation") as caught:
        models_of(method, clip=1.0)
    assert caught.value.where == "bank.yaml: privacy.clip"


@pytest.mark.parametrize("method", ["laser", "standard", "plug"])
def test_others_release_one(method):
    models_of(method, clip=1.0)


def test_a_vote_has_to_fit():
    models_of("ensemble", width=7)
    with pytest.raises(MismatchError, match="3 classes takes 7 columns, and has 6") as caught:
        models_of("ensemble", width=6)
    assert "representation_dim" in caught.value.hint
    with pytest.raises(MismatchError, match="an amount"):
        models_of("ensemble", classes=())
