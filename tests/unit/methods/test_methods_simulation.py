"""Every method in one process, and the paper's ordering on digits."""

import numpy as np
import pytest
from methods_world import CLASSES

from laser_vfl import Simulation
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.data.sets.digits import read_digits

METHODS = ("laser", "local", "standard", "ensemble", "combinatorial", "plug")
TINY = {
    "hidden": [8],
    "representation_dim": 8,
    "batch_size": 32,
    "epochs": 6,
    "optimizer": OptimizerSettings(lr=0.03),
}


def world(num=150, seed=0, p_miss=0.3, num_clients=3):
    """Each client sees a part of what decides the class."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((num, 2))
    labels = np.array(CLASSES)[(latent > 0).sum(axis=1)]
    blocks = {}
    for k in range(num_clients):
        block = latent @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((num, 3))
        block[rng.random(num) < p_miss] = np.nan
        blocks[f"client-{k}"] = block
    return blocks, labels


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_predicts(method):
    blocks, labels = world()
    given = {"client-1": labels, "client-2": labels}  # the first has none
    federation = Simulation(method=method, **TINY).fit(blocks, given)
    heads = {"client-1"} if method in ("standard", "plug") else set(given)
    decisions = federation.decisions(blocks)
    assert set(decisions) == heads
    for name, (_, rows) in decisions.items():
        assert rows.tolist() == (~np.isnan(blocks[name][:, 0])).tolist()
    whole, truth = world(seed=1, p_miss=0.0)
    assert federation.score(whole, dict.fromkeys(heads, truth)) > 0.5
    assert set(federation.predict(whole)) <= set(CLASSES)
    again = Simulation(method=method, **TINY).fit(blocks, given)
    for name, learner in federation._learners.items():
        ours, theirs = learner.models.state_dict(), again._learners[name].models.state_dict()
        assert all((ours[key] == theirs[key]).all() for key in ours)


@pytest.mark.parametrize("method", [*METHODS, "vfedtrans"])
def test_every_method_learns_from_private_labels(method):
    blocks, labels = world(num=300, p_miss=0.1)
    given = {"client-1": labels, "client-2": labels}
    options = TINY | {"epochs": 12}
    true, private, again = (
        Simulation(method=method, label_epsilon=epsilon, **options).fit(blocks, given)
        for epsilon in (None, 3.0, 3.0)
    )
    whole, truth = world(num=300, p_miss=0.0)
    heads = dict.fromkeys(private._labels, truth)
    assert private.score(whole, heads) > true.score(whole, heads) - 0.1
    for name in heads:
        found, same, other = (
            one._learners[name].models.state_dict() for one in (private, again, true)
        )
        assert all((found[key] == same[key]).all() for key in found)
        assert any((found[key] != other[key]).any() for key in found)


def test_private_amounts_are_learnt():
    blocks, _ = world(num=600, p_miss=0.0)
    amounts = 7 + 2 * blocks["client-0"][:, 0] + blocks["client-1"][:, 1]
    options = TINY | {"epochs": 20}
    private = Simulation(label_epsilon=4.0, **options).fit(blocks, {"client-2": amounts})
    assert private.score(blocks, {"client-2": amounts}) > 0.5


def test_votes_on_different_labels_are_never_mixed():
    blocks, labels = world(p_miss=0.0)
    other = np.array(["yes", "no", "maybe"])[np.searchsorted(CLASSES, labels)]
    given = {"client-0": labels, "client-1": labels, "client-2": other}
    mixed = Simulation(method="ensemble", **TINY).fit(blocks, given)
    local = Simulation(method="local", **TINY).fit(blocks, given)
    assert (mixed.predict(blocks, "client-2") == local.predict(blocks, "client-2")).all()
    assert set(mixed.predict(blocks, "client-0")) <= set(CLASSES)


def test_votes_need_classes_and_room():
    blocks, labels = world()
    with pytest.raises(MismatchError, match="an amount"):
        Simulation(method="ensemble", **TINY).fit(blocks, np.arange(len(labels)) / 7)
    with pytest.raises(MismatchError, match="3 classes takes 7 columns, and has 6"):
        Simulation(method="ensemble", **TINY | {"representation_dim": 6}).fit(blocks, labels)


def test_combinations_of_eleven_clients_are_too_many():
    blocks, labels = world(num=20, num_clients=11)
    with pytest.raises(MismatchError, match="11 clients would have 2047 predictors"):
        Simulation(method="combinatorial", **TINY).fit(blocks, labels)


def quadrants(images, rng, p_miss):
    corners = [(0, 0), (0, 4), (4, 0), (4, 4)]
    parts = [images[:, i : i + 4, j : j + 4] / 16 for i, j in corners]
    blocks = {f"client-{k}": part.reshape(len(part), -1) for k, part in enumerate(parts)}
    for block in blocks.values():
        block[rng.random(len(block)) < p_miss] = np.nan
    return blocks


def test_laser_is_better_than_local_and_standard_when_half_of_the_blocks_are_missing():
    images, digits = read_digits()
    images, rng = images.reshape(-1, 8, 8), np.random.default_rng(0)
    order = rng.permutation(len(images))
    train, test = order[:1200], order[1200:]
    known, asked = quadrants(images[train], rng, 0.5), quadrants(images[test], rng, 0.5)
    scores = {}
    for method in ("laser", "local", "standard"):
        federation = Simulation(
            method=method,
            hidden=[32],
            representation_dim=16,
            batch_size=64,
            epochs=8,
            seed=1,
            optimizer=OptimizerSettings(lr=0.01),
        )
        scores[method] = federation.fit(known, digits[train]).score(asked, digits[test])
    assert scores["laser"] > scores["local"] + 0.03, scores
    assert scores["laser"] > scores["standard"] + 0.3, scores
