"""Steps under way at the same time, against the same steps written by hand."""

import copy

import pytest
import torch
from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.training.learner import (
    FederationContext,
    Learner,
    OptimizerSettings,
    delay_factor,
)
from tests.support.oracle.core_federation import DIM, FEATURES, World, assert_same, settings_of

OBSERVED = [{0, 1, 2}] * 9 + [{0, 1}, {0, 1}, {1, 2}, {1, 2}, {0}, {1}, {2}, {2}, {0, 2}]
EVERYONE = 0b111
MOMENTUM = OptimizerSettings(name="sgd", lr=0.1, momentum=0.5)


def world_of(depth, **keys):
    world = World(OBSERVED, 3, {0, 2})
    settings = settings_of(pipeline=depth, **keys)
    return world, settings


def trained(members: dict[int, Member]) -> dict[str, torch.Tensor]:
    return {
        f"{k}.{name}": value.clone()
        for k, member in members.items()
        for name, value in member.learner.models.state_dict().items()
    }


def by_hand(world, settings, every):
    """Take each gradient at the parameters that a step begins with, and apply it in its turn."""
    depth = settings.pipeline
    members = world.members(settings, MOMENTUM)
    now = {k: copy.deepcopy(m.learner.models) for k, m in members.items()}
    optimizers = {
        k: torch.optim.SGD(
            models.parameters(), lr=0.1 * delay_factor(depth), momentum=MOMENTUM.momentum
        )
        for k, models in now.items()
    }
    computed = []

    def apply_before(step):
        while computed and computed[0][0] < step:
            _, gradients = computed.pop(0)
            for k, found in gradients.items():
                for parameter, gradient in zip(now[k].parameters(), found, strict=True):
                    parameter.grad = gradient
                optimizers[k].step()

    plain = settings_of(checkpoint_every=every)
    for step in range(Oracle(members, settings).num_steps):
        apply_before(max(step - depth, step - step % every))
        fresh = world.members(plain, MOMENTUM)
        for k, member in fresh.items():
            member.learner.models.load_state_dict(now[k].state_dict())
        losses = Oracle(fresh, plain).losses(step, EVERYONE)
        torch.autograd.backward(list(losses.values()))
        gradients = {
            k: [p.grad for p in member.learner.models.parameters()]
            for k, member in fresh.items()
            if any(p.grad is not None for p in member.learner.models.parameters())
        }
        computed.append((step, gradients))
    apply_before(10**6)
    return {f"{k}.{name}": v for k, m in now.items() for name, v in m.state_dict().items()}


@pytest.mark.parametrize(("depth", "every"), [(0, 200), (1, 200), (3, 200), (3, 4), (7, 5)])
def test_gradients_are_as_old_as_the_pipeline_says(depth, every):
    world, settings = world_of(depth, checkpoint_every=every)
    members = world.members(settings, MOMENTUM)
    Oracle(members, settings).run()
    found, expected = trained(members), by_hand(world, settings, every)
    assert found.keys() == expected.keys()
    assert_same(found, expected)


def test_who_drops_what_is_under_way_has_not_changed():
    world, settings = world_of(2)
    world.models[1]["representation"] = nn.Sequential(nn.Linear(FEATURES, DIM), nn.BatchNorm1d(DIM))
    members = world.members(settings)
    before = trained(members)
    oracle = Oracle(members, settings)
    for step in range(2):
        oracle.step(step, EVERYONE, appliers=0)
    oracle.settle()
    assert all(torch.equal(before[name], value) for name, value in trained(members).items())
    assert all(p.grad is None for m in members.values() for p in m.learner.models.parameters())


def test_running_statistics_are_those_that_a_step_leaves():
    world, settings = world_of(1)
    norm = nn.BatchNorm1d(DIM)
    world.models[0]["representation"] = nn.Sequential(nn.Linear(FEATURES, DIM), norm)
    members = world.members(settings)
    oracle = Oracle(members, settings)
    oracle.step(0, EVERYONE)
    counted = members[0].learner.models["representation"][1].num_batches_tracked
    assert counted == 0, "it is under way"
    oracle.step(1, EVERYONE)
    assert counted == 1
    oracle.step(2, EVERYONE)
    assert counted == 1, "step 1 began beside step 0"
    oracle.settle()
    assert counted == 2, "step 2 began after step 0"


class Untouchable(nn.Linear):
    def __deepcopy__(self, memo):
        raise TypeError("it holds a lock")


def test_models_that_cannot_be_copied_are_refused_with_the_reason():
    world, settings = world_of(1)
    member = world.member(0, settings_of())
    with pytest.raises(ConfigError, match="it holds a lock"):
        Learner(
            FederationContext(0, 3, 0b101, settings),
            Untouchable(FEATURES, DIM),
            None,
            method=member.learner.method,
        )
