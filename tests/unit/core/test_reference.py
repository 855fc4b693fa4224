"""The oracle against the same step written by hand, and what a step must and must not change."""

import copy
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.randomness import RandomStream, random_words
from laser_vfl.core.reference import Oracle
from laser_vfl.core.training.gradients import crossing, fan_out, rows_at, spread, sum_in_order
from laser_vfl.core.training.layer_randomness import initial_randomness
from laser_vfl.core.training.learner import OptimizerSettings
from tests.support.oracle.core_federation import (
    DIM,
    FEATURES,
    World,
    assert_same,
    plain_loss,
    settings_of,
)

OBSERVED = [{0, 1, 2}] * 5 + [{0, 1}, {0, 1}, {1, 2}, {1, 2}, {0}, {1}, {2}, {2}, {0, 2}]
EVERYONE = 0b111


def state(members):
    """All parameters and buffers, copied."""
    return {
        f"{k}.{name}": value.clone()
        for k, member in members.items()
        for name, value in member.learner.models.state_dict().items()
    }


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def draw_by_hand(settings, step, client, observed_of_rows):
    """Subsets by row, from the definition: for size i the i - 1 other blocks with least words."""
    blocks = sorted(set().union(*observed_of_rows))
    num_tasks = max(map(len, observed_of_rows))
    per_sample = settings.task_sampling == "per_sample"
    words = random_words(
        (len(observed_of_rows) if per_sample else 1) * num_tasks * len(blocks),
        seed=settings.seed,
        stream=RandomStream.TASKS,
        counter=step,
        client=client,
    ).tolist()
    draws = []
    for b, observed in enumerate(observed_of_rows):
        subsets = []
        for t in range(len(observed)):
            start = ((b if per_sample else 0) * num_tasks + t) * len(blocks)
            word_of = dict(zip(blocks, words[start : start + len(blocks)], strict=True))
            others = sorted(observed - {client}, key=word_of.get)
            subsets.append([client, *others[:t]])
        draws.append(subsets)
    return draws


def step_by_hand(world, settings, number, lr):
    """One step of all clients on one graph, sample by sample; returns models and head losses."""
    models = {k: copy.deepcopy(m) for k, m in world.models.items()}
    dtype = getattr(torch, settings.wire_precision)
    groups = world.alignments[0].groups
    in_group = [
        [n for n, o in enumerate(world.observed) if sum(1 << i for i in o) == group.observed]
        for group in groups
    ]
    samples = [
        in_group[segment.group][place]
        for segment in world.schedule(settings).step(number).segments
        for place in segment.places
    ]
    held = {k: [n for n in samples if k in world.observed[n]] for k in range(world.num_clients)}
    own = {
        k: models[k]["representation"](torch.from_numpy(world.features[held[k], k]))
        for k in held
        if held[k]
    }
    losses = {}
    for k in sorted(world.heads & own.keys()):
        seen = {
            i: own[i][[held[i].index(n) for n in held[k] if i in world.observed[n]]] for i in own
        }
        seen = {i: rows if i == k else rows.to(dtype).float() for i, rows in seen.items()}
        order = {i: [n for n in held[k] if i in world.observed[n]] for i in own}
        draws = draw_by_hand(settings, number, k, [world.observed[n] for n in held[k]])
        total = torch.zeros(())
        for n, subsets in zip(held[k], draws, strict=True):
            m = len(world.observed[n])
            for subset in subsets:
                mean = sum(seen[i][order[i].index(n)] for i in subset) / len(subset)
                counted = subset
                if settings.subset_weight == "heads":
                    counted = world.heads & set(subset)
                weight = comb(m - 1, len(subset) - 1) / len(counted)
                loss = plain_loss(world, k, n, models[k]["fusion"](mean))
                total = total + loss * weight * world.label_weight(k)[n]
        nominal = settings.loss_divisor == "batch_size"
        total = total / (settings.batch_size if nominal else len(samples))
        if settings.loss_scale == "normalized":
            total = total / ((2**world.num_clients - 1) / world.num_clients)
        losses[k] = total
    sum(losses.values()).backward()
    for model in models.values():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data -= lr * parameter.grad
    return models, {k: loss.item() for k, loss in losses.items()}


@pytest.mark.parametrize(
    ("heads", "keys"),
    [
        ({0, 1, 2}, {}),
        ({1}, {}),
        ({0, 2}, {"subset_weight": "blocks", "loss_divisor": "rows"}),
        ({0, 1, 2}, {"preset": "paper"}),
        ({0, 2}, {"preset": "paper", "batching": "mixed"}),
        ({0, 2}, {"wire_precision": "float16"}),
        ({0, 1, 2}, {"wire_precision": "bfloat16"}),
    ],
    ids=["all-heads", "one-head", "blocks", "paper", "paper-mixed", "float16", "bfloat16"],
)
def test_a_step_equals_the_same_step_by_hand(heads, keys):
    settings = settings_of(batch_size=9, **keys)
    world = World(
        OBSERVED, 3, heads, tasks={0: "binary", 2: "regression"}, unlabelled={2: {0}, 1: {1, 6}}
    )
    for number in (0, 1):
        members = world.members(settings)
        got = Oracle(members, settings).step(number, EVERYONE)
        models, expected = step_by_hand(world, settings, number, lr=0.5)
        assert got == pytest.approx(expected, rel=2e-6)
        after = state(members)
        by_hand = {f"{k}.{n}": v for k, m in models.items() for n, v in m.state_dict().items()}
        assert_same(after, by_hand)
        assert not same(after, state(world.members(settings)))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_crossing_rounds_the_value_and_its_gradient(precision):
    dtype = getattr(torch, precision)
    tensor = torch.tensor([1 / 3, -1e-3, 300.1], requires_grad=True)
    seen = crossing(tensor, precision)
    gradient = torch.tensor([0.1, 1 / 7, -33.3])
    seen.backward(gradient)
    assert seen.dtype == torch.float32
    assert torch.equal(seen.detach(), tensor.detach().to(dtype).float())
    assert not torch.equal(seen.detach(), tensor.detach())
    assert torch.equal(tensor.grad, gradient.to(dtype).float())


def test_a_crossing_in_float32_changes_nothing():
    tensor = torch.rand(3)
    assert crossing(tensor, "float32") is tensor


def test_rows_are_taken_and_spread_by_position():
    tensor_bd = torch.arange(8.0).reshape(4, 2)
    positions = np.array([3, 1])
    rows = rows_at(tensor_bd, positions)
    assert rows.tolist() == [[6, 7], [2, 3]]
    assert spread(rows, positions, 4).tolist() == [[0, 0], [2, 3], [0, 0], [6, 7]]
    assert rows_at(tensor_bd, None) is tensor_bd
    assert spread(tensor_bd, None, 4) is tensor_bd


def test_gradients_of_copies_are_added_from_the_first_to_the_last():
    parts = [torch.tensor([big]) for big in (1e8, 1.0, -1e8, 1.0)]
    in_order = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    assert torch.equal(sum_in_order(parts), in_order)
    assert not torch.equal(sum_in_order(parts), sum_in_order(sorted(parts)))
    tensor = torch.zeros(1, requires_grad=True)
    copies = fan_out(tensor, 4)
    # In the other direction, so that the order of the graph is not the order of the copies.
    torch.autograd.backward(list(reversed(copies)), list(reversed(parts)))
    assert torch.equal(tensor.grad, in_order)


def test_a_step_depends_only_on_what_came_before():
    settings = settings_of()
    runs = []
    for _ in range(2):
        world = World(OBSERVED, 3, {0, 2})
        members = world.members(settings, OptimizerSettings(name="adam", lr=0.01))
        oracle = Oracle(members, settings)
        losses = oracle.run()
        assert len(losses) == oracle.num_steps == 3 * 4
        torch.rand(5)  # whatever else draws from torch's generator
        runs.append((losses, state(members)))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])


class Unmixed(nn.Module):
    """A representation with one extra layer, to put batch norm or dropout into a world."""

    def __init__(self, layer):
        super().__init__()
        self.linear = nn.Linear(FEATURES, DIM)
        self.layer = layer

    def forward(self, inputs):
        return self.layer(self.linear(inputs))


def world_with(layer, observed, heads=frozenset({0, 1, 2})):
    world = World(observed, 3, set(heads))
    for models in world.models.values():
        models["representation"] = Unmixed(copy.deepcopy(layer))
    return world


def test_a_single_row_uses_the_running_statistics_of_batch_norm():
    norm = nn.BatchNorm1d(DIM)
    norm.running_mean += torch.arange(DIM)
    norm.running_var *= 4
    # Client 2 has one row in the step, the others have three.
    world = world_with(norm, [{0, 1}, {0, 1}, {0, 1, 2}])
    settings = settings_of(batching="mixed")
    members = world.members(settings)
    before = state(members)
    plan = world.plan(2)
    represented = members[2].learner.begin_step().represent(members[2].inputs[plan.rows], step=0)
    model = members[2].learner.models["representation"]
    linear = model.linear(members[2].inputs)
    expected = (linear - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(represented, expected)
    assert model.layer.training

    Oracle(members, settings).step(0, EVERYONE)
    after = state(members)
    moved = {k: not torch.equal(before[k], after[k]) for k in before}
    assert [moved[f"{k}.representation.layer.running_mean"] for k in range(3)] == [
        True,
        True,
        False,
    ]
    assert moved["2.representation.linear.weight"]


def test_dropout_is_a_function_of_seed_step_and_client():
    world = world_with(nn.Dropout(0.5), [{0, 1, 2}] * 4)
    members = world.members(settings_of())
    inputs = torch.ones(30, FEATURES)

    def dropped(client, step, **keys):
        member = members[client] if not keys else world.member(client, settings_of(**keys))
        torch.rand(3)
        return (member.learner.begin_step().represent(inputs, step) == 0).tolist()

    assert dropped(0, 5) == dropped(0, 5)
    assert dropped(0, 5) != dropped(0, 6)
    assert dropped(0, 5) != dropped(1, 5)
    assert dropped(0, 5) != dropped(0, 5, seed=12)


def test_initial_parameters_depend_on_seed_and_client_alone():
    def first_weights(seed, client):
        with initial_randomness(seed, client):
            return nn.Linear(2, 2).weight.tolist()

    torch.default_generator.manual_seed(1)
    reference = first_weights(7, 0)
    torch.rand(3)
    assert first_weights(7, 0) == reference
    assert first_weights(7, 1) != reference
    assert first_weights(8, 0) != reference
    torch.default_generator.manual_seed(1)
    first = torch.rand(1)
    torch.default_generator.manual_seed(1)
    first_weights(7, 0)
    assert torch.equal(torch.rand(1), first)


def test_a_step_without_a_labelled_participant_changes_nothing():
    world = world_with(nn.BatchNorm1d(DIM), OBSERVED, heads={1})
    settings = settings_of(batch_size=14)
    members = world.members(settings, OptimizerSettings(name="adamw", lr=0.1, weight_decay=0.1))
    before = state(members)
    assert Oracle(members, settings).step(0, 0b101) == {}
    assert same(state(members), before)


@pytest.mark.parametrize("sampling", ["per_sample", "per_batch"])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_client_that_takes_no_part_is_a_missing_block(gone, sampling):
    settings = settings_of(task_sampling=sampling)
    world = World(OBSERVED, 3, {0, 1, 2})
    without = {k: m for k, m in world.members(settings).items() if k != gone}
    members = world.members(settings)
    untouched = state({gone: members[gone]})
    Oracle(members, settings).run(5, participants=lambda step: EVERYONE & ~(1 << gone))

    # The same groups, as if nobody had ever held that block of them.
    groups = tuple(Group(g.observed & ~(1 << gone), g.size) for g in world.alignments[0].groups)
    missing = {
        k: replace(member, alignment=ClientAlignment(groups, member.alignment.rows))
        for k, member in without.items()
    }
    Oracle(missing, settings).run(5)
    assert same(state({k: members[k] for k in missing}), state(missing))
    assert same(state({gone: members[gone]}), untouched)


def test_membership_may_change_between_steps():
    settings = settings_of()
    world = World(OBSERVED, 3, {0, 2})
    views = [0b111, 0b011, 0b110, 0b101]
    runs = []
    for _ in range(2):
        members = world.members(settings)
        runs.append((Oracle(members, settings).run(4, participants=views.__getitem__), members))
    assert runs[0][0] == runs[1][0]
    heads = [set(losses) for losses in runs[0][0]]
    assert all(found <= {0, 2} for found in heads)
    assert 2 not in heads[1]
    assert 0 not in heads[2]
    members = world.members(settings)
    whole = Oracle(members, settings)
    by_step = [whole.step(number, views[number]) for number in range(4)]
    assert by_step == runs[0][0]


def test_the_cosine_schedule_falls_by_epochs_to_its_floor():
    world = World(OBSERVED, 3, {0, 1, 2})
    optimizer = OptimizerSettings(name="sgd", lr=2.0, schedule="cosine", lr_floor=0.1)
    learner = world.member(0, settings_of(), optimizer).learner
    rates = []
    for progress in (0.0, 0.5, 1.0):
        parameter = learner.models["fusion"].bias
        before = parameter.detach().clone()
        parameter.grad = torch.ones_like(parameter)
        learner.apply_step(learner.begin_step(), progress)
        rates.append(float((before - parameter.detach())[0]))
        assert parameter.grad is None
    assert rates == pytest.approx([2.0, 2.0 * 0.55, 0.2], rel=1e-5)
