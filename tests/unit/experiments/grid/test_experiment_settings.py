"""Settings of experiments: as published, merged in order, and refused with a place when wrong."""

from itertools import product
from pathlib import Path

import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets import SET_NAMES
from laser_vfl.experiments.grid.experiment_settings import (
    CONFIGS,
    METHODS,
    known_datasets,
    load_experiment,
    settings_for,
)
from laser_vfl.methods.training_settings import TrainingSettings

OTHERS = [method for method in METHODS if not method.startswith("laser")]


def of(dataset, method, p_train=0.1, num_clients=4):
    """Epochs, lr, weight decay, momentum and the floor of the schedule."""
    found = settings_for(dataset, method, p_train=p_train, num_clients=num_clients)
    optimizer = found.optimizer
    return (
        found.training["epochs"],
        optimizer["lr"],
        optimizer.get("weight_decay", 0),
        optimizer.get("momentum", 0),
        optimizer.get("lr_floor") if optimizer.get("schedule") == "cosine" else None,
    )


def test_every_data_set_has_settings_for_every_method():
    assert set(known_datasets()) == set(SET_NAMES)
    for dataset in SET_NAMES:
        experiment = load_experiment(CONFIGS / f"{dataset}.yaml")
        assert experiment.dataset == dataset
        for method, p_train, clients in product(METHODS, (0, 0.1, 0.5, "beta"), (2, 4, 8)):
            found = experiment.settings(method, p_train=p_train, num_clients=clients)
            preset = "default" if method == "laser-mixed" else "paper"
            assert TrainingSettings.model_validate(found.training).preset == preset


@pytest.mark.parametrize(
    ("dataset", "method", "p_train", "expected"),
    [
        ("hapt", "laser", 0.0, (100, 0.03, 1e-4, 0.8, None)),
        ("hapt", "laser", 0.1, (100, 0.03, 1e-4, 0.8, None)),
        ("hapt", "laser", 0.5, (100, 0.02, 1e-4, 0.7, None)),
        *(("hapt", method, 0.5, (100, 0.05, 1e-4, 0.8, None)) for method in OTHERS),
        ("credit", "laser", 0.1, (100, 1e-4, 1e-3, 0, None)),
        ("credit", "laser", 0.5, (125, 1e-4, 1e-3, 0, 0.2)),
        *(
            ("credit", method, 0.5, (75, 1e-4, 1e-4, 0, None))
            for method in ("local", "standard", "combinatorial", "plug")
        ),
        ("credit", "ensemble", 0.5, (50, 1e-4, 1e-3, 0, None)),
        *(("mimic4", method, 0.5, (20, 1e-3, 0, 0, None)) for method in ("laser", *OTHERS)),
        *(("cifar10", method, 0.5, (100, 0.1, 8e-3, 0.5, 0.02)) for method in ("laser", "plug")),
        ("cifar10", "local", 0.5, (100, 0.1, 1e-2, 0.5, 0.02)),
        ("cifar100", "laser", 0, (150, 0.15, 7e-3, 0.5, 0.02)),
        ("cifar100", "laser", 0.1, (150, 0.1, 7e-3, 0.5, 0.02)),
        ("cifar100", "laser", 0.5, (150, 0.1, 7e-3, 0.5, 0.02)),
        ("cifar100", "standard", 0.1, (150, 0.15, 4e-3, 0.5, 0.02)),
    ],
)
def test_the_settings_are_those_of_the_paper(dataset, method, p_train, expected):
    assert of(dataset, method, p_train) == expected


def test_the_rate_for_cifar_10_falls_with_the_number_of_clients():
    rates = [of("cifar10", "laser", 0.1, clients)[1] for clients in range(2, 9)]
    assert rates == [0.1, 0.1, 0.1, 0.05, 0.05, 0.03, 0.02]


@pytest.mark.parametrize("p_train", [0, 0.5])
@pytest.mark.parametrize("dataset", ["hapt", "cifar10", "cifar100"])
def test_mixed_takes_the_steps_of_the_paper_with_a_normalised_loss(dataset, p_train):
    epochs, lr, decay, *rest = of(dataset, "laser", p_train)
    mixed_epochs, mixed_lr, mixed_decay, *mixed_rest = of(dataset, "laser-mixed", p_train)
    assert (mixed_epochs, mixed_rest) == (epochs, rest)
    assert mixed_lr == pytest.approx(3.75 * lr)
    assert mixed_lr * mixed_decay == pytest.approx(lr * decay)


def test_models_and_widths():
    hapt = settings_for("hapt", "local", p_train=0, num_clients=4)
    assert (hapt.model["hidden"], hapt.training["representation_dim"]) == ([128, 128], 128)
    credit = settings_for("credit", "local", p_train=0, num_clients=4)
    assert (credit.model["hidden"], credit.training["representation_dim"]) == ([10, 10], 10)
    assert credit.data == {"class_weights": "balanced"}
    cifar = settings_for("cifar10", "local", p_train=0, num_clients=4)
    assert cifar.model["representation_options"] == {"width": 32, "stem_padding": 0}


@pytest.mark.parametrize(
    ("dataset", "method", "match"),
    [
        ("mnist", "laser", 'no settings for the data set "mnist"; use one of cifar10'),
        ("hapt", "boosting", 'no method "boosting"; use one of local'),
    ],
)
def test_unknown_names_are_told_with_the_known_ones(dataset, method, match):
    with pytest.raises(ConfigError, match=match):
        settings_for(dataset, method, p_train=0, num_clients=4)


BASE = """\
dataset: hapt
training: {representation_dim: 8, batch_size: 4, epochs: 1}
optimizer: {name: sgd, lr: 0.1}
methods:
  laser:
    optimizer: {lr: 0.2}
    p_train:
      "0.50": {optimizer: {lr: 0.3, momentum: 0.5}}
    clients:
      "8": {optimizer: {lr: 0.4}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("method", "p_train", "clients", "expected"),
    [
        ("local", 0.5, 8, {"name": "sgd", "lr": 0.1}),
        ("laser", 0.0, 4, {"name": "sgd", "lr": 0.2}),
        ("laser", 0.5, 4, {"name": "sgd", "lr": 0.3, "momentum": 0.5}),
        ("laser", 0.5, 8, {"name": "sgd", "lr": 0.4, "momentum": 0.5}),
        ("laser", "beta", 4, {"name": "sgd", "lr": 0.2}),
    ],
)
def test_what_is_nearer_to_the_run_wins(tmp_path, method, p_train, clients, expected):
    experiment = load_experiment(write(tmp_path, BASE))
    found = experiment.settings(method, p_train=p_train, num_clients=clients)
    assert found.optimizer == expected


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("  laser:", "  lasers:", "own.yaml:5:3: methods.lasers: "),
        ('"0.50"', '"half"', "own.yaml:8:7: methods.laser.p_train.half: "),
        ('"8"', '"some"', "own.yaml:10:7: methods.laser.clients.some: "),
        ("momentum: 0.5", "momentum: 2", "own.yaml:8:37: optimizer.momentum: "),
        ("epochs: 1", "epoch: 1", "own.yaml:2:50: training.epoch: "),
        ("name: sgd", "name: adam", "own.yaml:8:37: optimizer.momentum: "),
        ("dataset: hapt", "data_set: hapt", "own.yaml:1:1: data_set: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, old, new, place):
    path = write(tmp_path, BASE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path).settings("laser", p_train=0.5, num_clients=8)
    assert place in str(caught.value)
    assert caught.value.hint
