"""Scores by subset: who is predicted with what, against predictions made one at a time."""

import json

import numpy as np
import pytest
import torch

from laser_vfl.core.alignment import Group
from laser_vfl.core.evaluation.metrics import best_constant, score
from laser_vfl.core.evaluation.shapley import NUM_ORDERS, prefixes, random_orders
from laser_vfl.core.evaluation.subset_scores import (
    Evaluation,
    decide,
    orders_to_score,
    subsets_to_score,
)
from laser_vfl.core.schedule.schedule import in_order
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import FederationContext
from tests.support.oracle.core_federation import World, settings_of, subsets_with

ROSTER = ["bank", "shop", "telco"]
OBSERVED = [{0, 1, 2}, {0, 1}, {0}, {0, 1, 2}, {0, 1}, {1}, {0}, {0, 1, 2}, {0, 1}, {0, 1}, {2}]
UNLABELLED = {3, 4}


def evaluated(task, *, batch_size=4, target_std=1.0, participants=0b111):
    world = World(OBSERVED, 3, {0}, tasks={0: task}, unlabelled={0: UNLABELLED})
    member = world.member(0, settings_of())
    rows = world.rows[0]
    evaluation = Evaluation(
        member.learner,
        subsets_to_score(0, member.alignment.groups),
        world.target(0)[rows].double().numpy(),
        ~np.isin(rows, list(UNLABELLED)),
        target_std=target_std,
    )
    for step in in_order(member.alignment.groups, batch_size):
        plan = plan_step(step, member.alignment, client=0, participants=participants, heads=0b001)
        if plan is not None:
            evaluation.add(plan, world.stack(plan, world.models).detach())
    return world, evaluation.scores(ROSTER)


def predicted(world, sample, subset):
    with torch.no_grad():
        parts = [
            world.models[i]["representation"](torch.from_numpy(world.features[sample, i]))
            for i in subset
        ]
        output = world.models[0]["fusion"](torch.stack(parts).mean(dim=0))
    return float(output.argmax()) if world.task(0) == "multiclass" else float(output[0])


@pytest.mark.parametrize("task", ["multiclass", "binary", "regression"])
def test_scores_equal_predictions_made_one_at_a_time(task):
    std = 2.5 if task == "regression" else 1.0
    world, got = evaluated(task, target_std=std)
    labelled = [n for n, o in enumerate(OBSERVED) if 0 in o and n not in UNLABELLED]

    def expected(samples, subset_of, *, counted=True):
        scores = score(
            task,
            np.array([predicted(world, n, subset_of(n)) for n in samples]) * std,
            world.target(0)[samples].double().numpy() * std,
        )
        near = {
            name: value if value is None else pytest.approx(value, rel=1e-4)
            for name, value in scores.items()
        }
        return {**near, "num_samples": len(samples)} if counted else near

    def all_blocks(sample):
        return sorted(OBSERVED[sample])

    assert got["task"] == task
    assert got["num_samples"] == len(labelled) == 7
    assert got["overall"] == expected(labelled, all_blocks, counted=False)
    assert list(got["by_num_blocks"]) == ["1", "2", "3"]
    for num, scores in got["by_num_blocks"].items():
        alike = [n for n in labelled if len(OBSERVED[n]) == int(num)]
        assert scores == expected(alike, all_blocks)
    # telco without shop is not an observed set, but the rows that have both are scored on it.
    assert list(got["by_subset"]) == ["bank", "bank,shop", "bank,telco", "bank,shop,telco"]
    for subset in subsets_with(0, [0, 1, 2]):
        at_least = [n for n in labelled if set(subset) <= OBSERVED[n]]
        name = ",".join(ROSTER[i] for i in subset)
        assert got["by_subset"][name] == expected(at_least, lambda _, subset=subset: subset)
    assert [got["by_subset"][name]["num_samples"] for name in got["by_subset"]] == [7, 5, 2, 2]
    assert set(got["by_observed_set"]) == {"bank", "bank,shop", "bank,shop,telco"}
    for name, scores in got["by_observed_set"].items():
        exactly = [n for n in labelled if ",".join(ROSTER[i] for i in sorted(OBSERVED[n])) == name]
        assert scores == expected(exactly, all_blocks)
    whole = [n for n in labelled if OBSERVED[n] == {0, 1, 2}]
    full = got["fully_observed"]
    assert (full["blocks"], full["num_samples"]) == ("bank,shop,telco", len(whole))
    for subset in subsets_with(0, [0, 1, 2]):
        name = ",".join(ROSTER[i] for i in subset)
        paired = expected(whole, lambda _, subset=subset: subset, counted=False)
        assert full["by_subset"].pop(name) == paired
    assert full["by_subset"] == {}
    for samples, constant in ((labelled, got["constant"]), (whole, full["constant"])):
        targets = world.target(0)[samples].double().numpy() * std
        assert constant == best_constant(task, targets)
    json.dumps(got, allow_nan=False)


def test_scores_do_not_depend_on_the_batches():
    assert evaluated("binary", batch_size=3)[1] == evaluated("binary", batch_size=100)[1]


def test_few_blocks_are_enumerated_and_many_are_not():
    groups = [Group(0b0111, 3), Group(0b1000, 2), Group(0b0001, 1)]
    assert subsets_to_score(0, groups) == [0b001, 0b011, 0b101, 0b111]
    assert subsets_to_score(3, groups) == [0b1000]
    assert subsets_to_score(4, groups) == []
    wide = 2**12 - 1
    groups = [Group(wide, 5), Group(0b110, 5)]
    assert subsets_to_score(1, groups) == [0b10, 0b110, wide]
    few = subsets_to_score(1, groups, used=lambda mask: mask & 0b1010)
    assert few == [0b10, 0b1010], "a method may use less than is observed"
    assert orders_to_score(FederationContext(1, 12, wide, settings_of()), groups[1:]) == []
    orders = orders_to_score(FederationContext(1, 12, wide, settings_of()), groups)
    assert orders == random_orders(12, seed=settings_of().seed)


def test_many_blocks_are_added_in_the_same_orders_at_all_clients():
    wide = 2**12 - 1
    contexts = [FederationContext(client, 13, wide, settings_of()) for client in range(12)]
    groups = [Group(wide, 5), Group(0b110, 5)]  # nobody has the thirteenth block
    orders = orders_to_score(contexts[0], groups)
    assert all(orders_to_score(context, groups) == orders for context in contexts)
    assert len(orders) == NUM_ORDERS
    for client in range(12):
        got = subsets_to_score(client, groups, orders)
        assert len(got) <= 12 * NUM_ORDERS + 2
        assert all(subset >> client & 1 and not subset & ~wide for subset in got)
        for order in orders:
            assert {subset | 1 << client for subset in prefixes(order, wide)} <= set(got)
    # What no row has cannot be scored.
    partial = [Group(0b0111_1111_1111, 5), Group(0b1111_1111_1110, 5)]
    assert wide not in subsets_to_score(1, partial, orders)
    assert all(
        any(not subset & ~group.observed for group in partial)
        for subset in subsets_to_score(1, partial, orders)
    )


def test_rows_of_a_lost_member_are_not_fully_observed():
    """It left before these rows were tested, and its block occurs in none of them."""
    full = evaluated("multiclass", participants=0b011)[1]["fully_observed"]
    assert full["blocks"] == "bank,shop"
    assert list(full["by_subset"]) == ["bank", "bank,shop"]
    paired = [n for n, observed in enumerate(OBSERVED) if {0, 1} <= observed]
    assert full["num_samples"] == len(set(paired) - UNLABELLED)


def test_decisions_are_classes_log_odds_or_values():
    outputs = torch.tensor([[0.5, 2.0], [3.0, -1.0]])
    assert decide("multiclass", outputs).tolist() == [1, 0]
    assert decide("binary", outputs[:, :1]).tolist() == [0.5, 3.0]
    assert decide("regression", outputs[:, :1]).tolist() == [0.5, 3.0]


def test_a_client_that_holds_no_test_row_has_empty_scores():
    world = World([{1}], 2, {0, 1})
    learner = world.member(0, settings_of()).learner
    empty = np.zeros(0)
    got = Evaluation(learner, [], empty, empty.astype(bool)).scores(ROSTER)
    assert got["num_samples"] == 0
    assert got["overall"] == {"accuracy": None}
    assert got["by_subset"] == got["by_num_blocks"] == got["by_observed_set"] == {}
    assert (got["constant"], got["fully_observed"]) == ({"accuracy": None}, None)
    assert mask_of([]) == 0
