"""Stacked training is the oracle's, but for rounding."""

import numpy as np
import pytest
import torch
from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.experiments.engines.in_process_engine import Stacked, run_case_stacked
from laser_vfl.experiments.engines.model_stack import Stack
from laser_vfl.experiments.engines.stacked_oracle import Diverged
from laser_vfl.simulation import Simulation

ROSTER = ("bank", "shop", "telco")
OPTIMIZERS = {
    "sgd": OptimizerSettings("sgd", lr=0.05, momentum=0.8, weight_decay=1e-3),
    "adam": OptimizerSettings("adam", lr=0.01, weight_decay=1e-3, schedule="cosine", lr_floor=0.2),
    "adamw": OptimizerSettings("adamw", lr=0.01, weight_decay=1e-2),
}


def blocks_and_labels(num=90, classes=3):
    draw = np.random.default_rng(5)
    rows = draw.normal(size=(num, 12)).astype(np.float32)
    labels = (rows[:, :classes] + rows[:, 4 : 4 + classes]).argmax(axis=1)
    blocks = {name: rows[:, 4 * k : 4 * k + 4].copy() for k, name in enumerate(ROSTER)}
    for block in blocks.values():
        block[draw.random(num) < 0.4] = np.nan
    return blocks, labels


def trained(kind, labels_of=lambda labels: labels, classes=3, **options):
    blocks, labels = blocks_and_labels(classes=classes)
    settings = {"hidden": (8,), "representation_dim": 8, "batch_size": 16, "epochs": 3, "seed": 4}
    return kind(**settings | options).fit(blocks, labels_of(labels)), blocks


def assert_equal_but_for_rounding(**options):
    (one, blocks), (other, _) = trained(Simulation, **options), trained(Stacked, **options)
    for name in ROSTER:
        mine, theirs = (s._learners[name].models.state_dict() for s in (one, other))
        for key, value in mine.items():
            torch.testing.assert_close(value, theirs[key], rtol=1e-4, atol=1e-5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mine = one.decisions(blocks)
        torch.manual_seed(0)
        theirs = other.decisions(blocks)
    assert mine.keys() == theirs.keys()
    for name, (values, held) in mine.items():
        np.testing.assert_allclose(values, theirs[name][0], rtol=1e-3, atol=1e-4)
        assert (held == theirs[name][1]).all()


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize(
    "method", ["laser", "local", "standard", "ensemble", "plug", "combinatorial", "vfedtrans"]
)
def test_every_method(method, preset):
    assert_equal_but_for_rounding(method=method, preset=preset, optimizer=OPTIMIZERS["sgd"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser(name):
    assert_equal_but_for_rounding(optimizer=OPTIMIZERS[name])


@pytest.mark.parametrize("batching", ["mixed", "by_pattern"])
@pytest.mark.parametrize("task_sampling", ["per_sample", "per_batch"])
def test_every_way_to_sample(batching, task_sampling):
    assert_equal_but_for_rounding(batching=batching, task_sampling=task_sampling)


def test_two_classes_and_weights_of_classes():
    assert_equal_but_for_rounding(classes=2, class_weights="balanced", fusion="mlp")


def test_labels_at_one_client_and_rare_subsets():
    assert_equal_but_for_rounding(
        labels_of=lambda labels: {"shop": labels}, loss_weighting="availability"
    )


@pytest.mark.parametrize("method", ["laser", "plug"])
def test_two_classes_and_a_first_client_without_labels(method):
    assert_equal_but_for_rounding(
        labels_of=lambda labels: {"shop": labels}, classes=2, method=method
    )


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4, bias=False)),
        nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
        nn.Sequential(nn.Flatten(0), nn.Linear(4, 4)),
        nn.TransformerEncoderLayer(4, 1),
    ],
)
def test_a_model_that_is_no_plain_mlp_is_refused(model):
    with pytest.raises(ConfigError, match="equal widths"):
        Stack([model], OPTIMIZERS["sgd"])


def test_a_layer_that_stands_in_two_places_counts_twice():
    torch.manual_seed(0)
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu)
    inputs = torch.randn(5, 4)
    outputs = Stack([model], OPTIMIZERS["sgd"]).run(inputs[None], [0])
    torch.testing.assert_close(outputs[0], model(inputs))


@pytest.mark.parametrize("method", ["local", "vfedtrans"])
def test_who_diverges_spoils_nobody_else(method):
    """A product with zeros would, so the run is given up."""
    with pytest.raises(Diverged):
        trained(Stacked, method=method, optimizer=OptimizerSettings("sgd", lr=1e12))


def test_a_run_that_diverges_is_the_oracles(monkeypatch):
    kinds = []

    def run(case, data, kind, engine):
        kinds.append(kind)
        if kind is Stacked:
            raise Diverged
        return [engine]

    monkeypatch.setattr("laser_vfl.experiments.engines.in_process_engine._run", run)
    assert run_case_stacked(None) == ["stacked"]
    assert kinds == [Stacked, Simulation]


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(ConfigError, match="neither masked_gradients"):
        trained(Stacked, masked_gradients=True)
    with pytest.raises(ConfigError, match="neither masked_gradients"):
        trained(Stacked, wire_precision="bfloat16")
    with pytest.raises(ConfigError, match="do the same"):
        trained(Stacked, labels_of=lambda labels: {"bank": labels, "shop": labels > 0})
    with pytest.raises(ConfigError, match="equal widths"):
        trained(Stacked, labels_of=lambda labels: {"bank": labels, "shop": np.arange(90) % 4})
