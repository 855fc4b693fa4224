"""Lemma 1, exactly: over all draws the sampled loss averages to the sum over all subsets."""

from itertools import permutations

import numpy as np
import pytest
import torch

from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training import task_sampling as tasks_module
from tests.support.oracle.core_federation import World, assert_same, gradients, settings_of
from tests.support.oracle.head_loss import head_loss

ALL, SOME = "all", "some"


@pytest.mark.parametrize(
    ("heads", "weight", "sampling", "scale"),
    [
        (ALL, "heads", "per_sample", "paper"),
        (SOME, "heads", "per_batch", "normalized"),
        (SOME, "blocks", "per_sample", "paper"),
    ],
)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_mean_over_all_draws_is_the_full_sum(monkeypatch, m, heads, weight, sampling, scale):
    with_head = set(range(m)) if heads == ALL else set(range(0, m, 2))
    world = World([set(range(m))] * 3, num_clients=m, heads=with_head)
    settings = settings_of(
        batch_size=3, subset_weight=weight, task_sampling=sampling, loss_scale=scale
    )

    total = torch.zeros(())
    for client in sorted(with_head):
        plan = world.plan(client)
        stack_bpd = world.stack(plan, world.models)
        losses = []
        for order in orders_of_others(client, m):
            monkeypatch.setattr(tasks_module, "random_words", constant_words(order))
            tasks = tasks_module.sample_tasks(
                plan, settings, num_clients=m, heads=mask_of(with_head)
            )
            losses.append(
                head_loss(
                    world.models[client]["fusion"],
                    "multiclass",
                    tasks,
                    stack_bpd,
                    world.target(client)[world.samples(plan)],
                    torch.ones(3),
                )
            )
        total = total + torch.stack(losses).mean()

    doubles = world.doubles()
    full = sum(world.full_losses(doubles, weight)) / 3
    if scale == "normalized":
        full = full / ((2**m - 1) / m)
    assert total.item() == pytest.approx(full.item(), rel=1e-6)
    assert_same(gradients(total, world.models), gradients(full, doubles))


def orders_of_others(client, m):
    """Every order that independent words can put the other blocks in; the own word is the largest.

    The loss is a sum over sizes and samples, so giving all of them the same order in each draw
    changes its mean over the draws not at all.
    """
    for ranks in permutations(range(m - 1)):
        words = [1 + rank for rank in ranks]
        words.insert(client, 2**40)
        yield words


def constant_words(order):
    def random_words(num, **_):
        return np.tile(np.array(order, dtype=np.uint64) << np.uint64(8), num // len(order))

    return random_words
