"""Masked gradients: masks cancel for whoever gets all of them, and hide each part of the sum."""

import hashlib
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.privacy.masking import dequantised, mask_for, num_unmasked, quantised
from laser_vfl.core.reference import Oracle
from laser_vfl.core.schedule.step_plan import Plan, Share
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.gradients import crossing, fan_out_summed, rows_at
from tests.support.oracle.core_federation import World, settings_of

NUM_CLIENTS = 4
WIDTH = 3


def key_between(one: int, other: int) -> bytes:
    return hashlib.sha256(bytes(sorted([one, other]))).digest()


def mask(plan: Plan, share: Share, generation: int = 1) -> np.ndarray:
    return mask_for(
        plan,
        share,
        lambda peer: key_between(plan.client, peer),
        generation=generation,
        width=WIDTH,
    )


def share_with(plan: Plan, peer: int) -> Share:
    return next(share for share in plan.shares if share.peer == peer)


worlds = st.builds(
    World,
    st.lists(st.sets(st.integers(0, NUM_CLIENTS - 1), min_size=1), min_size=4, max_size=12).map(
        lambda observed: [*observed, set(range(NUM_CLIENTS))]
    ),
    st.just(NUM_CLIENTS),
    st.sets(st.integers(0, NUM_CLIENTS - 1), min_size=1),
)


@settings(max_examples=50, deadline=None)
@given(worlds)
def test_masks_cancel_row_by_row_and_cover_what_they_can(world):
    plans = {k: world.plan(k) for k in range(NUM_CLIENTS)}
    for target, plan in plans.items():
        samples = world.samples(plan)
        total = np.zeros((len(samples), WIDTH), dtype=np.int64)
        for share in plan.head_peers:
            theirs = plans[share.peer]
            part = mask(theirs, share_with(theirs, target))
            mine = slice(None) if share.positions is None else share.positions
            total[mine] += part
            for sample, row in zip(samples[mine], part, strict=True):
                others = (world.heads & world.observed[sample]) - {target, share.peer}
                assert row.all() == bool(others), "64-bit zeros do not come by chance"
        assert not total.any()


def test_every_mask_is_another_one():
    world = World([{0, 1, 2, 3}] * 5, NUM_CLIENTS, {0, 1, 2, 3})
    plan = world.plan(0)
    found = [mask(plan, share, generation) for share in plan.shares for generation in (1, 2)]
    later = Plan(**{**vars(plan), "step": 1})
    found.append(mask(later, later.shares[0]))
    for one, other in combinations(found, 2):
        assert (one != other).all()
    assert (mask(plan, plan.shares[0]) == found[0]).all()


def test_a_sum_of_masked_gradients_is_what_autograd_gives_in_fixed_point():
    world = World([{0, 1, 2, 3}, {0, 1, 3}, {1, 2, 3}, {2, 3}, {0, 3}, {3}], 4, {0, 1, 2, 3})
    plans = {k: world.plan(k) for k in range(4)}
    target = plans[3]
    representation = torch.zeros(len(target.rows), WIDTH, requires_grad=True)
    own, *copies = fan_out_summed(representation, 3, has_own=True)
    torch.manual_seed(3)
    gradients = {k: torch.randn(share.num_rows, WIDTH) for k, share in enumerate(target.head_peers)}
    own_gradient = torch.randn(len(target.rows), WIDTH)
    loss = (own * own_gradient).sum()
    total = torch.zeros(len(target.rows), WIDTH, dtype=torch.int64)
    for k, share in enumerate(target.head_peers):
        loss = loss + (rows_at(copies[k], share.positions) * gradients[k]).sum()
        masked = quantised(gradients[k]) + torch.from_numpy(mask(plans[k], share_with(plans[k], 3)))
        rows = slice(None) if share.positions is None else torch.from_numpy(share.positions)
        total[rows] += masked
    loss.backward()
    assert torch.equal(representation.grad, own_gradient + dequantised(total))


@pytest.mark.parametrize("value", [2.0**24, -(2.0**24), np.inf, np.nan])
def test_a_gradient_out_of_bounds_ends_training(value):
    with pytest.raises(TrainingStopped, match="too large"):
        quantised(torch.tensor([1.0, value]))


def test_a_sum_at_the_bound_does_not_wrap():
    largest = torch.full((1,), np.nextafter(np.float32(2**24), np.float32(0)))
    total = sum((quantised(largest) for _ in range(63)), torch.zeros(1, dtype=torch.int64))
    assert dequantised(total).item() == pytest.approx(63 * 2**24, rel=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_training_is_the_same_but_for_rounding(precision):
    observed = [{0, 1, 2}] * 6 + [{0, 1}, {1, 2}, {0}, {2}]
    plain, masked = (
        settings_of(masked_gradients=value, wire_precision=precision) for value in (False, True)
    )
    world = World(observed, 3, {0, 1})
    ends = []
    for one in (plain, masked):
        members = world.members(one)
        Oracle(members, one).run()
        ends.append({k: m.learner.models.state_dict() for k, m in members.items()})
    accuracy = 1e-5 if precision == "float32" else 1e-2
    for k, state in ends[0].items():
        for name, value in state.items():
            assert torch.allclose(value, ends[1][k][name], rtol=accuracy, atol=accuracy)
    assert any(not torch.equal(v, ends[1][2][n]) for n, v in world.models[2].state_dict().items())


def test_masked_gradients_are_not_rounded_to_the_precision_of_the_wire():
    start = torch.ones(1, requires_grad=True)
    for masked, expected in ((False, 1.0), (True, 1 + 2**-20)):
        (gradient,) = torch.autograd.grad(
            crossing(start, "float16", masked_gradients=masked), start, torch.tensor([1 + 2**-20])
        )
        assert gradient.item() == expected


@settings(max_examples=30, deadline=None)
@given(worlds, st.sets(st.integers(0, NUM_CLIENTS - 1)))
def test_unmasked_rows_are_counted(world, participants):
    for client in world.heads:
        present = participants | {client}
        observed = [o & present for o in world.observed]
        shared = [o for o in observed if client in o and len(o) > 1]
        bare = [
            o
            for o in shared
            if any(not (world.heads & o) - {client, target} for target in o - {client})
        ]
        heads = sum(1 << head for head in world.heads)
        got = num_unmasked(world.alignments[0].groups, client, heads, mask_of(present))
        assert got == (len(bare), len(shared))
