"""Drawn tasks: which subsets, how often, with what weight."""

from collections import Counter
from math import comb

import numpy as np
import pytest

from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import clients_in, mask_of, subset_name, subsets_containing
from laser_vfl.core.training.task_sampling import all_tasks, sample_tasks
from laser_vfl.methods.training_settings import TrainingSettings
from tests.support.oracle.core_federation import World, drawn, settings_of

CRITICAL = {3: 16.27, 5: 20.52, 15: 37.70}
"""Chi-square at p = 0.001 by degrees of freedom."""


def plan_of(masks, client, *, step=0, num_samples=None):
    """A head's plan for rows with these observed sets."""
    union = int(np.bitwise_or.reduce(np.array(masks, dtype=np.uint64)))
    return Plan(
        step=step,
        client=client,
        rows=np.arange(len(masks)),
        observed_b=np.array(masks, dtype=np.uint64),
        blocks=clients_in(union),
        shares=(),
        num_samples=num_samples or len(masks),
        has_head=True,
        head_peers=(),
    )


MASKS = [0b10110, 0b00100, 0b11111, 0b00101, 0b10110, 0b11110]


@pytest.mark.parametrize("weight", ["heads", "blocks"])
@pytest.mark.parametrize("heads", [0b11111, 0b00100, 0b10101])
def test_every_sample_gets_one_subset_of_each_size_with_its_weight(heads, weight):
    settings = settings_of(batch_size=8, loss_scale="paper", subset_weight=weight)
    plan = plan_of(MASKS, client=2)
    found = drawn(sample_tasks(plan, settings, num_clients=5, heads=heads), plan)
    sizes = [(position, len(subset)) for position, subset, _ in found]
    assert sizes == [(b, i) for b, o in enumerate(MASKS) for i in range(1, o.bit_count() + 1)]
    for position, subset, got in found:
        observed = MASKS[position]
        mask = mask_of(subset)
        assert 2 in subset
        assert mask & ~observed == 0
        counted = (mask & heads).bit_count() if weight == "heads" else len(subset)
        expected = comb(observed.bit_count() - 1, len(subset) - 1) / counted / 8
        assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 20, 64])
def test_the_weights_of_a_sample_sum_to_the_papers_constant(m):
    plan = plan_of([2**m - 1], client=0)
    for scale, expected in (("paper", (2**m - 1) / m), ("normalized", 1.0)):
        settings = settings_of(batch_size=1, loss_scale=scale)
        tasks = sample_tasks(plan, settings, num_clients=m, heads=2**m - 1)
        assert float(tasks.weight_n.double().sum()) == pytest.approx(expected, rel=1e-6)


def test_normalized_divides_by_a_constant_of_the_roster_not_of_the_sample():
    plan = plan_of(MASKS, client=2)
    paper, normalized = (
        sample_tasks(plan, settings_of(loss_scale=scale), num_clients=6, heads=0b111111)
        for scale in ("paper", "normalized")
    )
    ratio = (paper.weight_n / normalized.weight_n).numpy()
    np.testing.assert_allclose(ratio, (2**6 - 1) / 6, rtol=1e-6)


def test_the_divisor_is_the_nominal_batch_size_or_the_samples_of_the_step():
    plan = plan_of(MASKS, client=2, num_samples=9)
    nominal, rows = (
        sample_tasks(
            plan, settings_of(batch_size=16, loss_divisor=divisor), num_clients=5, heads=31
        )
        for divisor in ("batch_size", "rows")
    )
    np.testing.assert_allclose((rows.weight_n / nominal.weight_n).numpy(), 16 / 9, rtol=1e-6)


def test_the_paper_preset_is_the_five_published_choices():
    got = TrainingSettings(representation_dim=1, batch_size=1, epochs=1, preset="paper")
    assert (got.batching, got.task_sampling, got.loss_scale) == ("by_pattern", "per_batch", "paper")
    assert (got.loss_divisor, got.subset_weight) == ("rows", "blocks")


def chi_square(counts, num_cells):
    total = sum(counts.values())
    expected = total / num_cells
    missing = num_cells - len(counts)
    return sum((n - expected) ** 2 / expected for n in counts.values()) + missing * expected


def drawn_masks(tasks, plan):
    """The drawn subsets as masks, (b, t)."""
    return (tasks.averaging_btp > 0).numpy() @ (1 << np.array(plan.blocks))


def assert_uniform(masks_n, num_others, size):
    num_cells = comb(num_others, size - 1)
    assert chi_square(Counter(masks_n.tolist()), num_cells) < CRITICAL[num_cells - 1]


def test_subsets_of_a_size_are_equally_likely_and_sizes_independent():
    # Block 3 is missing; client 1 draws among four others.
    plan = plan_of([0b110111] * 4000, client=1)
    tasks = sample_tasks(plan, settings_of(), num_clients=6, heads=0b111111)
    masks_bt = drawn_masks(tasks, plan)
    for size in (2, 3, 4):
        assert_uniform(masks_bt[:, size - 1], 4, size)
    pairs = Counter(zip(masks_bt[:, 1].tolist(), masks_bt[:, 3].tolist(), strict=True))
    assert chi_square(pairs, 16) < CRITICAL[15]


def test_one_draw_per_batch_is_as_fair_over_the_steps():
    settings = settings_of(task_sampling="per_batch")
    masks = []
    for step in range(400):
        plan = plan_of([0b11111], client=4, step=step)
        masks.append(drawn_masks(sample_tasks(plan, settings, num_clients=5, heads=31), plan)[0])
    for size in (2, 3, 4):
        assert_uniform(np.array(masks)[:, size - 1], 4, size)


def test_per_batch_draws_once_for_all_samples_of_an_observed_set_and_per_sample_does_not():
    masks = [0b11111, 0b11110, 0b11111, 0b01111] * 10

    def draws_by_set(sampling):
        plan = plan_of(masks, client=2)
        tasks = sample_tasks(plan, settings_of(task_sampling=sampling), num_clients=5, heads=31)
        by_sample = {b: [] for b in range(len(masks))}
        for position, subset, _ in drawn(tasks, plan):
            by_sample[position].append(subset)
        return [
            {tuple(by_sample[b]) for b, mask in enumerate(masks) if mask == observed}
            for observed in sorted(set(masks))
        ]

    assert [len(draws) for draws in draws_by_set("per_batch")] == [1, 1, 1]
    assert all(len(draws) > 1 for draws in draws_by_set("per_sample"))


def test_draws_depend_on_seed_step_and_client_and_on_nothing_else():
    def draw(*, seed=0, step=0, client=1):
        plan = plan_of([31] * 20, client=client, step=step)
        return drawn(sample_tasks(plan, settings_of(seed=seed), num_clients=5, heads=31), plan)

    assert draw() == draw()
    assert draw() != draw(seed=1)
    assert draw() != draw(step=1)
    # With the same words, the partners that clients 1 and 2 choose in a pair could differ only
    # where one of them chose the other.
    partners = [
        [({*subset} - {client}).pop() for _, subset, _ in draw(client=client) if len(subset) == 2]
        for client in (1, 2)
    ]
    assert any(
        one != other and {one, other} <= {0, 3, 4} for one, other in zip(*partners, strict=True)
    )


def test_all_tasks_are_all_pairs_of_a_sample_and_a_subset_of_its_blocks():
    world = World([{0, 1}, {0}, {0, 1, 2}, {0, 2}], num_clients=3, heads={0})
    plan = world.plan(0)
    subsets = list(subsets_containing(0, 0b111))
    tasks, subset_n = all_tasks(plan, subsets)
    found = [(b, mask_of(subset), w) for b, subset, w in drawn(tasks, plan)]
    expected = [
        (b, subset, 1.0)
        for b, observed in enumerate(plan.observed_b.tolist())
        for subset in subsets
        if subset & ~observed == 0
    ]
    assert found == expected
    assert [subsets[i] for i in subset_n] == [subset for _, subset, _ in expected]


def test_all_tasks_of_a_single_row_can_be_written_to():
    world = World([{0, 1}], num_clients=2, heads={0})
    tasks, _ = all_tasks(world.plan(0), [0b01, 0b11])
    tasks.averaging_btp.zero_()
    assert tasks.averaging_btp.shape == (1, 2, 2)


def test_subsets_come_by_size_and_then_in_roster_order():
    assert list(subsets_containing(1, 0b1110)) == [0b0010, 0b0110, 0b1010, 0b1110]
    assert subset_name(0b1010, ["a", "b", "c", "d"]) == "b,d"


def test_an_empty_step_has_no_samples():
    assert Step(0, ()).num_samples == 0


@pytest.mark.parametrize("at_most", [1.5, 10.0])
def test_rare_subsets_weigh_more_where_availability_counts(at_most):
    """Each task on I has min(c, N / N_I) times its weight; N_I samples have the blocks I."""
    groups = [Group(0b111, 4), Group(0b011, 20), Group(0b001, 30), Group(0b110, 6)]
    plan = plan_of([0b111, 0b011, 0b001] * 5, client=0)
    plain = settings_of(task_sampling="per_sample")
    weighted = settings_of(loss_weighting="availability", max_loss_weight=at_most)
    before = drawn(sample_tasks(plan, plain, num_clients=3, heads=0b111, groups=groups), plan)
    after = drawn(sample_tasks(plan, weighted, num_clients=3, heads=0b111, groups=groups), plan)
    num_observing = {(0,): 54, (0, 1): 24, (0, 2): 4, (0, 1, 2): 4}
    assert {subset for _, subset, _ in after} == set(num_observing)
    for (position, subset, weight), (same, found, more) in zip(before, after, strict=True):
        assert (position, subset) == (same, found)
        assert more == pytest.approx(weight * min(at_most, 60 / num_observing[subset]))
