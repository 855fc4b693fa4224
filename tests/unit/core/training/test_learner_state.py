"""A step that is dropped leaves no trace, and training goes on from a state bit for bit."""

import copy

import pytest
import torch
from torch import nn

from laser_vfl.core.errors import DataError
from laser_vfl.core.reference import Oracle
from laser_vfl.core.training.learner import OptimizerSettings
from tests.support.oracle.core_federation import DIM, FEATURES, World, settings_of

OBSERVED = [{0, 1, 2}] * 8 + [{0, 1}, {1, 2}, {0, 2}, {0}]
EVERYONE = 0b111
OPTIMIZERS = {
    "sgd": OptimizerSettings(name="sgd", lr=0.1),
    "momentum": OptimizerSettings(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": OptimizerSettings(name="adam", lr=0.01),
    "adamw": OptimizerSettings(name="adamw", lr=0.01, weight_decay=0.1),
    "cosine": OptimizerSettings(name="adam", lr=0.05, schedule="cosine", lr_floor=0.1),
}
ADAM = OPTIMIZERS["adam"]


class Replacing(nn.Module):
    """A layer that puts a new tensor where its buffer was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(DIM))
        self.register_buffer("last", None)

    def forward(self, inputs):
        self.mean = 0.9 * self.mean + inputs.mean(0).detach()
        self.last = self.mean
        return inputs - self.mean


def world_of(*layers):
    world = World(OBSERVED, 3, {0, 2})
    for models in world.models.values():
        models["representation"] = nn.Sequential(
            nn.Linear(FEATURES, DIM), *(copy.deepcopy(layer) for layer in layers)
        )
    return world


NOISY = world_of(nn.BatchNorm1d(DIM), nn.Dropout(0.3))


def members_of(optimizer=ADAM, world=NOISY):
    return world.members(settings_of(), optimizer)


def states(members):
    return {k: member.learner.state() for k, member in members.items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for k in one:
        assert one[k].keys() == other[k].keys()
        for name in one[k].keys() - {"random"}:
            assert torch.equal(one[k][name], other[k][name]), f"{k} {name}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_goes_on_from_a_state_bit_for_bit(optimizer):
    members = members_of(optimizer)
    whole = Oracle(members, settings_of())
    for number in range(4):
        whole.step(number, EVERYONE)
    kept = states(members)
    losses = [whole.step(number, EVERYONE) for number in range(4, 9)]

    later = members_of(optimizer)
    oracle = Oracle(later, settings_of())
    oracle.step(0, EVERYONE)  # something to be replaced
    for k, member in later.items():
        member.learner.load_state(kept[k])
    assert [oracle.step(number, EVERYONE) for number in range(4, 9)] == losses
    assert_equal(states(later), states(members))


def test_a_state_is_a_copy_both_ways():
    members = members_of()
    oracle = Oracle(members, settings_of())
    oracle.step(0, EVERYONE)
    kept = states(members)
    before = copy.deepcopy(kept)
    oracle.step(1, EVERYONE)
    assert_equal(kept, before)
    members[0].learner.load_state(kept[0])
    oracle.step(1, EVERYONE)
    assert_equal(kept, before)
    assert all(value.device.type == "cpu" and not value.requires_grad for value in kept[0].values())


def test_a_state_restores_the_randomness():
    members = members_of()
    oracle = Oracle(members, settings_of())
    oracle.step(0, EVERYONE)
    kept = members[0].learner.state()["random"]
    oracle.step(1, EVERYONE)
    later = members[0].learner.state()
    assert not torch.equal(later["random"], kept)
    members[0].learner.load_state({**later, "random": kept})
    assert torch.equal(members[0].learner.state()["random"], kept)


def test_the_state_before_the_first_step_is_one_too():
    members = members_of()
    kept = states(members)
    Oracle(members, settings_of()).step(0, EVERYONE)
    for k, member in members.items():
        member.learner.load_state(kept[k])
    assert_equal(states(members), states(members_of()))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda s: s.pop("random"), '"random" is missing'),
        (lambda s: s.pop("models.fusion.bias"), "fusion.bias"),
        (lambda s: s.pop("optimizer.0.exp_avg"), "exp_avg"),
        (lambda s: s.update({"models.more": torch.zeros(1)}), "not known"),
        (lambda s: s.update({"more": torch.zeros(1)}), "not known"),
        (lambda s: s.update({"optimizer.0.more": torch.zeros(1)}), "not known"),
        (lambda s: s.update({"optimizer.99.step": torch.zeros(())}), "not known"),
        (lambda s: s.update({"optimizer.x.step": torch.zeros(())}), "not known"),
        (lambda s: s.update({"models.fusion.bias": torch.zeros(9)}), "shape"),
        (lambda s: s.update({"models.fusion.bias": torch.zeros(3).double()}), "float64"),
        (lambda s: s.update({"optimizer.1.exp_avg": torch.zeros(1)}), "shape"),
        (lambda s: s.update({"optimizer.1.step": torch.zeros(2)}), "shape"),
        (lambda s: s.update({"random": s["random"][:-1]}), "shape"),
        (lambda s: s.update({"random": torch.full_like(s["random"], 255)}), "randomness"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(damage, said):
    members = members_of()
    oracle = Oracle(members, settings_of())
    oracle.step(0, EVERYONE)
    wrong = members[0].learner.state()
    oracle.step(1, EVERYONE)
    before = states(members)
    damage(wrong)
    with pytest.raises(DataError, match="does not fit") as caught:
        members[0].learner.load_state(wrong)
    assert said in caught.value.message
    assert_equal(states(members), before)


def test_a_state_of_another_optimiser_is_refused():
    members = members_of()
    Oracle(members, settings_of()).step(0, EVERYONE)
    with pytest.raises(DataError, match="does not fit"):
        members_of(OPTIMIZERS["sgd"])[0].learner.load_state(members[0].learner.state())


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(DIM), Replacing(), nn.Dropout(0.3)], ids=["norm", "own", "dropout"]
)
def test_a_step_begun_and_dropped_leaves_no_trace(layer):
    world = world_of(layer)
    members, untouched = members_of(world=world), members_of(world=world)
    oracle = Oracle(members, settings_of())
    calm = Oracle(untouched, settings_of())
    oracle.step(0, EVERYONE)
    calm.step(0, EVERYONE)
    begun = {k: member.learner.begin_step() for k, member in members.items()}
    torch.autograd.backward(list(oracle.losses(1, EVERYONE).values()))
    for k, member in members.items():
        member.learner.drop_step(begun[k])
        assert all(p.grad is None for p in member.learner.models.parameters())
    assert_equal(states(members), states(untouched))
    assert oracle.step(1, 0b101) == calm.step(1, 0b101)
    assert_equal(states(members), states(untouched))


def test_only_the_appliers_of_a_torn_step_change():
    members, whole = members_of(), members_of()
    before = states(members)
    torn = Oracle(members, settings_of()).step(0, EVERYONE, 0b010)
    assert torn == Oracle(whole, settings_of()).step(0, EVERYONE)
    after = states(members)
    assert_equal({1: after[1]}, {1: states(whole)[1]})
    assert_equal({k: after[k] for k in (0, 2)}, {k: before[k] for k in (0, 2)})
    with pytest.raises(AssertionError):
        assert_equal({1: after[1]}, {1: before[1]})


def test_a_step_that_was_applied_cannot_be_dropped_any_more():
    members = members_of()
    learner = members[0].learner
    begun = learner.begin_step()
    Oracle(members, settings_of()).step(0, EVERYONE)
    before = states(members)
    learner.drop_step(begun)
    assert_equal(states(members), before)
