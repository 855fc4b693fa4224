"""Twelve blocks: the scores along random orders, from the oracle, against all subsets of them."""

import numpy as np
import pytest

from laser_vfl.core.evaluation.shapley import NUM_ORDERS, exact_values, prefixes, sampled_values
from laser_vfl.core.evaluation.subset_scores import Evaluation, orders_to_score, subsets_to_score
from laser_vfl.core.reference import Oracle
from laser_vfl.core.schedule.schedule import in_order
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import OptimizerSettings
from tests.support.oracle.core_federation import World, settings_of, subsets_with

NUM = 12
EVERYONE = 2**NUM - 1
ROSTER = [f"org{i}" for i in range(NUM)]
WHOLE = set(range(NUM))
OBSERVED = [WHOLE] * 40 + [{0, 1}, {0}, {3, 4, 5}, set(range(11))]


@pytest.fixture(scope="module")
def trained():
    """Clients 0 and 1 have heads; what they learn does not matter, as long as it is something."""
    world = World(OBSERVED, NUM, {0, 1}, tasks={0: "regression", 1: "regression"})
    adam = OptimizerSettings(name="adam", lr=0.02)
    members = world.members(settings_of(batch_size=16), adam)
    Oracle(members, settings_of(batch_size=16)).run(num_steps=6)
    return world, members


def scores_at(trained, client, subsets):
    world, members = trained
    rows = world.rows[client]
    evaluation = Evaluation(
        members[client].learner,
        subsets,
        world.target(client)[rows].double().numpy(),
        np.ones(len(rows), dtype=bool),
    )
    models = {k: member.learner.models for k, member in members.items()}
    for step in in_order(world.alignments[client].groups, 16):
        plan = plan_step(
            step, world.alignments[client], client=client, participants=EVERYONE, heads=0b11
        )
        if plan is not None:
            evaluation.add(plan, world.stack(plan, models).detach())
    return evaluation.scores(ROSTER)["fully_observed"]["by_subset"]


def along_orders(trained, client):
    world, members = trained
    groups = world.alignments[client].groups
    orders = orders_to_score(members[client].learner.context, groups)
    return orders, scores_at(trained, client, subsets_to_score(client, groups, orders))


def name_of(mask):
    return ",".join(name for place, name in enumerate(ROSTER) if mask >> place & 1)


def test_both_heads_score_what_they_need_for_themselves_and_for_all(trained):
    (orders, first), (same, second) = (along_orders(trained, client) for client in (0, 1))
    assert orders == same
    assert len(orders) == NUM_ORDERS
    for order in orders:
        for subset in prefixes(order, EVERYONE):
            # In its own game a head is always there; in that of all, when its turn has come.
            assert name_of(subset | 1) in first
            assert name_of(subset | 2) in second


def test_the_estimate_is_within_its_error_of_all_subsets(trained):
    orders, few = along_orders(trained, 0)
    every = scores_at(trained, 0, [mask_of(s) for s in subsets_with(0, range(NUM))])
    assert len(few) < 12 * NUM_ORDERS + 5 < len(every) == 2 ** (NUM - 1)
    others = EVERYONE & ~1

    def value(scores):
        return lambda subset: scores[name_of(subset | 1)]["r2"]

    for name, entry in few.items():
        assert entry["r2"] == pytest.approx(every[name]["r2"], abs=1e-4)
    exact = exact_values(others, value(every))
    sampled = sampled_values(others, value({name: few.get(name, {}) for name in every}), orders)
    assert not sampled.unknown
    total = few[name_of(EVERYONE)]["r2"] - few["org0"]["r2"]
    assert sum(worth.value for worth in sampled.worths.values()) == pytest.approx(total)
    errors = [
        abs(worth.value - exact.worths[player].value) / worth.standard_error
        for player, worth in sampled.worths.items()
    ]
    assert len(errors) == NUM - 1
    assert max(errors) < 4
    assert sum(error < 2 for error in errors) >= NUM - 3
    assert any(error > 1e-6 for error in errors)
