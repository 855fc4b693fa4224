"""The loss of each method and its gradient equal a loop over samples, one prediction at a time."""

import pytest
import torch
from methods_world import OBSERVED, Small, subsets_of

from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.methods import plug

METHODS = ("local", "standard", "ensemble", "combinatorial", "plug")


def expected_loss(world, models, step):
    """The loss of all heads in a step that has all samples."""
    method, heads = world.settings.method, [k for k in range(3) if world.heads >> k & 1]
    dropped = plug._dropped(step, world.context(0)) if method == "plug" else 0
    total = torch.zeros((), dtype=torch.float64)
    for n, blocks in enumerate(world.observed):
        for k in sorted(blocks & set(heads)):
            for head, representations, share, weight in predictions(world, models, k, blocks):
                parts = [
                    representations[i](world.input(n, i)) * share
                    for i in representations
                    if not dropped >> i & 1
                ]
                total = total + world.loss(n, head(sum(parts))) * weight / len(world.observed)
    return total


def predictions(world, models, k, blocks):
    """Yield a head, the representation models that it sees, the share of each, and a weight."""
    method = world.settings.method
    whole = {i: models[i]["representation"] for i in sorted(blocks)}
    if method in ("local", "ensemble"):
        yield models[k]["fusion"], {k: whole[k]}, 1, 1
    elif method == "plug" or (method == "standard" and len(blocks) == 3):
        yield models[k]["fusion"], whole, 1 / 3, 1
    elif method == "combinatorial":
        for subset in subsets_of(blocks):
            if k in subset:
                mask, num_heads = mask_of(subset), (mask_of(subset) & world.heads).bit_count()
                parts = {i: whole[i].by_subset[mask] for i in subset}
                yield models[k]["fusion"].by_subset[mask], parts, 1 / len(subset), 1 / num_heads


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("labelled", [(0, 1, 2), (1, 2)], ids=["all", "two"])
def test_gradients_equal_the_plain_loop(method, labelled):
    world = Small(method, labelled, drop_probability=0.5)
    for step in range(4):
        losses = world.oracle.losses(step, 0b111)
        models = [learner.models for learner in world.learners]
        found = gradients(sum(losses.values()), models)
        doubles = world.doubles()
        expected = gradients(expected_loss(world, doubles, step), doubles)
        assert found.keys() == expected.keys()
        scale = max(float(value.abs().max()) for value in expected.values())
        for name, value in expected.items():
            error = float((found[name].double() - value).abs().max())
            assert error <= 2e-6 * scale, f"{name} is off by {error:g} of {scale:g}"


def gradients(loss, models):
    named = {f"{k}.{name}": p for k, m in enumerate(models) for name, p in m.named_parameters()}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


@pytest.mark.parametrize("labelled", [(0, 1, 2), (1,)], ids=["all", "one"])
@pytest.mark.parametrize(
    "optimizer",
    [
        OptimizerSettings(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.1),
        OptimizerSettings(name="adamw", lr=0.1, weight_decay=0.1),
    ],
    ids=["sgd", "adamw"],
)
def test_a_predictor_of_a_subset_learns_only_from_samples_with_its_blocks(labelled, optimizer):
    """The others stand still: no step of momentum or weight decay either."""
    observed = [{0, 1}, {1, 2}, {0, 1, 2}, {1}] * 2
    world = Small(
        "combinatorial",
        labelled,
        observed,
        optimizer=optimizer,
        batching="by_pattern",
        batch_size=2,
    )
    sizes = set()
    for step in range(40):
        patterns = [
            group.observed
            for segment in world.oracle.timeline.step(step).batch.segments
            for group in [world.alignments[0].groups[segment.group]]
        ]
        before = world.parameters()
        world.oracle.step(step, 0b111)
        changed = {
            (int(name[0]), part(world, name))
            for name, value in world.parameters().items()
            if not torch.equal(value, before[name])
        }
        expected = {
            (k, mask)
            for mask in range(1, 8)
            for k in range(3)
            if mask >> k & 1 and mask & world.heads and any(not mask & ~p for p in patterns)
        }
        assert changed == expected
        sizes.add(len(changed))
    assert len(sizes) > 2


def part(world, name):
    """The subset whose predictor a parameter belongs to: k.fusion.parts.3.weight."""
    client, _, _, slot, *_ = name.split(".")
    return [mask for mask in range(8) if mask >> int(client) & 1][int(slot)]


def test_clients_agree_on_what_the_columns_between_them_are():
    """Column c of what 0 sends to 2 is for the same subset as column c of what 2 expects from 0."""
    world = Small("combinatorial", observed=[{0, 1, 2, 3}])
    width = world.settings.representation_dim
    for k in range(4):
        masks = [mask for mask in range(16) if mask >> k & 1]
        for peer in set(range(4)) - {k}:
            theirs = [mask for mask in range(16) if mask >> peer & 1]
            mine, other = world.learners[k].columns(peer), world.learners[peer].columns(k)
            assert len(mine) == world.settings.exchanged_width(4) == 4 * width
            assert world.learners[k].exchanged_width == 4 * width
            assert [masks[c // width] for c in mine] == [theirs[c // width] for c in other]
            assert [c % width for c in mine.tolist()] == [c % width for c in other.tolist()]


def test_what_nobody_predicts_from_is_not_computed():
    world = Small("combinatorial", labelled=(0,))
    rows_nd = world.learners[1].embed(world.features[:, 1])
    by_slot = rows_nd.view(len(OBSERVED), 4, -1)  # {1}, {0, 1}, {1, 2}, {0, 1, 2}
    assert [bool(by_slot[:, slot].any()) for slot in range(4)] == [False, True, False, True]
