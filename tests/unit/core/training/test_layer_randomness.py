"""Clients that live in one process draw their random numbers as if each were alone."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
from torch import nn

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.training.layer_randomness import borrowed_generator, initial_randomness
from laser_vfl.core.training.learner import Learner
from laser_vfl.methods.laser import Laser
from laser_vfl.simulation import Simulation
from tests.support.oracle.core_federation import settings_of

torch.set_num_threads(1)

WIDTH = 32
PATIENCE_S = 0.2
"""How long one thread gives the other to interfere; it never has to."""


class Between(nn.Module):
    """Passes rows on, and lets another thread run in the middle of a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.reached.set()
        self.go_on.wait(PATIENCE_S)
        return rows


def with_dropout(input_shape, representation_dim, **_):
    return nn.Sequential(
        nn.Linear(*input_shape, 16), nn.Dropout(0.5), nn.Linear(16, representation_dim)
    )


def head(representation_dim, num_outputs, **_):
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(representation_dim, num_outputs))


def built(client, between):
    with initial_randomness(5, client):
        first = nn.Linear(4, 4)
        between()
        return torch.cat([first.weight, nn.Linear(4, 4).weight])


def test_models_built_at_the_same_time_have_the_parameters_of_models_built_alone():
    alone = [built(client, lambda: None) for client in range(2)]
    reached, go_on = threading.Event(), threading.Event()

    def between():
        reached.set()
        go_on.wait(PATIENCE_S)

    def let_the_first_go_on():
        go_on.set()
        wait([first], PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(built, 0, between)
        assert reached.wait(10)
        second = pool.submit(built, 1, let_the_first_go_on)
        together = [first.result(10), second.result(10)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def representation_of(learner, inputs):
    with torch.no_grad():
        return learner.begin_step().represent(inputs, step=3)


def slow_learner(client):
    """A learner whose forward pass stops between two layers that draw."""
    context, between = FederationContext(client, 2, 0b11, settings_of()), Between()
    with initial_randomness(5, client):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), between, nn.Dropout(0.5))
    return Learner(context, model, None, method=Laser()), between


@pytest.mark.parametrize("other", ["trains", "builds", "borrows"])
def test_a_forward_pass_draws_the_same_whatever_another_thread_does_meanwhile(other):
    inputs = torch.ones(8, WIDTH)
    learner, between = slow_learner(0)
    between.go_on.set()
    alone = representation_of(learner, inputs)
    between.go_on.clear()
    between.reached.clear()

    def let_the_first_go_on():
        between.go_on.set()
        wait([first], PATIENCE_S)

    def interfere():
        if other == "trains":
            second, second_between = slow_learner(1)
            second_between.go_on.set()
            representation_of(second, inputs)
            let_the_first_go_on()
        elif other == "builds":
            built(1, let_the_first_go_on)
        else:
            with borrowed_generator():
                torch.rand(100)
                let_the_first_go_on()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(representation_of, learner, inputs)
        assert between.reached.wait(10)
        second = pool.submit(interfere)
        together = first.result(10)
        second.result(10)
    assert torch.equal(alone, together)
    assert (alone == 0).any()


def parameters_of(seed):
    rng = np.random.default_rng(seed)
    blocks = {name: rng.normal(size=(80, 5)).astype(np.float32) for name in ("bank", "shop")}
    labels = (blocks["bank"].sum(axis=1) > 0).astype(int)
    federation = Simulation(
        representation=f"{__name__}:with_dropout",
        fusion=f"{__name__}:head",
        representation_dim=8,
        batch_size=8,
        epochs=6,
        seed=seed,
    ).fit(blocks, labels)
    return [learner.state() for learner in federation._learners.values()]


def test_federations_that_train_at_the_same_time_equal_the_oracle_bit_for_bit():
    expected = [parameters_of(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(parameters_of, range(4)))
    for alone, together in zip(expected, found, strict=True):
        for mine, other in zip(alone, together, strict=True):
            assert mine.keys() == other.keys()
            assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_a_checkpoint_has_the_clients_own_randomness():
    """Not where another client in this process has left torch's generator."""
    learner, between = slow_learner(0)
    between.go_on.set()
    representation_of(learner, torch.ones(2, WIDTH))
    before = learner.state()["random"]
    second, second_between = slow_learner(1)
    second_between.go_on.set()
    representation_of(second, torch.ones(2, WIDTH))
    assert torch.equal(learner.state()["random"], before)
    assert not torch.equal(second.state()["random"], before)
