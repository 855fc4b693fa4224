"""An epoch at fixed parameters adds up to N/B times the gradient of the full loss."""

from dataclasses import replace

import pytest
import torch

from laser_vfl.core.reference import Oracle
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.subsets import mask_of, subsets_containing
from laser_vfl.core.training.task_sampling import all_tasks
from tests.support.oracle.core_federation import World, assert_same, gradients, settings_of
from tests.support.oracle.head_loss import head_loss
from tests.support.oracle.schedules import epoch_of

BATCHINGS = ["mixed", "by_pattern"]


@pytest.mark.parametrize("scale", ["normalized", "paper"])
@pytest.mark.parametrize("heads", [{0, 1}, {1}], ids=["all-heads", "one-head"])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_two_clients_where_sampling_has_no_choice(batching, heads, scale):
    observed = [{0, 1}] * 7 + [{0}] * 3 + [{1}] * 5
    world = World(observed, 2, heads, tasks={1: "binary"}, unlabelled={1: {2, 12}})
    settings = settings_of(batching=batching, loss_scale=scale)
    members = world.members(settings)
    oracle = Oracle(members, settings)
    # 15 samples in batches of 4: the last is short; by pattern also those of 7, 3 and 5.
    num_steps = oracle.num_steps // settings.epochs
    assert num_steps == (4 if batching == "mixed" else 2 + 1 + 2)
    epoch = [loss for t in range(num_steps) for loss in oracle.losses(t, 0b11).values()]
    total = torch.stack(epoch).sum()

    doubles = world.doubles()
    full = torch.stack(world.full_losses(doubles, "heads")).mean()
    expected = full * len(observed) / settings.batch_size
    if scale == "normalized":
        expected = expected / (3 / 2)
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    models = {k: member.learner.models for k, member in members.items()}
    assert_same(gradients(total, models), gradients(expected, doubles))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_four_clients_with_all_tasks_enumerated(batching):
    observed = [{0, 1, 2, 3}] * 5 + [{0, 2}, {1, 2, 3}, {1, 2, 3}, {3}, {0}, {0, 1}, {1}]
    world = World(observed, 4, heads={0, 2, 3}, unlabelled={3: {1}})
    heads = mask_of(world.heads)
    settings = settings_of(batch_size=3, batching=batching)
    total = torch.zeros(())
    for step in epoch_of(world.schedule(settings), 1):
        for client in sorted(world.heads):
            plan = plan_step(
                step, world.alignments[client], client=client, participants=15, heads=heads
            )
            if plan is None:
                continue
            subsets = list(subsets_containing(client, mask_of(plan.blocks)))
            tasks, subset_n = all_tasks(plan, subsets)
            weights = [1 / (subsets[i] & heads).bit_count() / 3 for i in subset_n]
            samples = world.samples(plan)
            total = total + head_loss(
                world.models[client]["fusion"],
                "multiclass",
                replace(tasks, weight_n=torch.tensor(weights)),
                world.stack(plan, world.models),
                world.target(client)[samples],
                world.label_weight(client)[samples],
            )
    doubles = world.doubles()
    expected = sum(world.full_losses(doubles, "heads")) / 3
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert_same(gradients(total, world.models), gradients(expected, doubles))
