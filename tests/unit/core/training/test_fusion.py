"""The batched forward equals a loop over samples and subsets, one prediction at a time."""

import pytest
import torch
from torch import nn

from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.fusion import fused_representations
from laser_vfl.core.training.task_sampling import sample_tasks
from tests.support.oracle.core_federation import (
    DIM,
    OUTPUTS,
    World,
    assert_same,
    drawn,
    plain_loss,
    settings_of,
)
from tests.support.oracle.head_loss import head_loss

MIXED = [{0, 1, 2}, {1}, {0, 1}, {1, 2}, {0, 1, 2}, {1, 2}, {0, 2}]
FULL = [{0, 1, 2}] * 4


@pytest.mark.parametrize("observed", [MIXED, FULL], ids=["missing", "complete"])
@pytest.mark.parametrize("task", list(OUTPUTS))
def test_loss_and_gradients_equal_the_naive_loop(task, observed):
    world = World(observed, num_clients=3, heads={0, 1}, tasks={1: task}, unlabelled={1: {0, 3}})
    plan = world.plan(1)
    samples = world.samples(plan)
    tasks = sample_tasks(plan, settings_of(), num_clients=3, heads=mask_of({0, 1}))
    assert (tasks.kept_n is None) == (observed is FULL)
    # A label weight may be any number, not only 0 and 1: class_weights: balanced.
    label_weights = world.label_weight(1) * torch.linspace(0.5, 2, len(observed))
    fusion = world.models[1]["fusion"]
    stack_bpd = world.stack(plan, world.models).detach()

    def differentiated(loss, stack, head):
        names = ["stack", *(name for name, _ in head.named_parameters())]
        found = torch.autograd.grad(loss, [stack, *head.parameters()])
        return {"loss": loss.detach(), **dict(zip(names, found, strict=True))}

    stack = stack_bpd.clone().requires_grad_()
    batched = head_loss(
        fusion, task, tasks, stack, world.target(1)[samples], label_weights[samples]
    )
    got = differentiated(batched, stack, fusion)

    double = nn.Linear(DIM, OUTPUTS[task]).double()
    double.load_state_dict(fusion.state_dict())
    stack64 = stack_bpd.double().requires_grad_()
    naive = torch.zeros((), dtype=torch.float64)
    for position, subset, weight in drawn(tasks, plan):
        columns = [plan.blocks.index(block) for block in subset]
        mean = sum(stack64[position, column] for column in columns) / len(columns)
        sample = int(samples[position])
        loss = plain_loss(world, 1, sample, double(mean))
        naive = naive + loss * weight * label_weights[sample]
    expected = differentiated(naive, stack64, double)
    assert_same(got, expected)
    unlabelled = [position for position, n in enumerate(samples) if n in {0, 3}]
    assert not got["stack"][unlabelled].any()


def test_a_missing_block_never_reaches_the_head():
    world = World(MIXED, num_clients=3, heads={1})
    plan = world.plan(1)
    tasks = sample_tasks(plan, settings_of(), num_clients=3, heads=0b010)
    stack_bpd = world.stack(plan, world.models).detach()  # 1000 wherever a block is missing
    assert float(stack_bpd.max()) == 1000
    assert float(fused_representations(tasks, stack_bpd).abs().max()) <= 1
