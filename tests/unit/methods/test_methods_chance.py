"""What is left to chance is fair, and the same wherever it is drawn."""

import numpy as np
import pytest
import torch
from methods_world import CLASSES, DIM, OBSERVED, Small
from torch import nn

from laser_vfl.core.evaluation.subset_scores import Evaluation, subsets_to_score
from laser_vfl.methods import ensemble, plug

NUM_STEPS = 2000


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.7])
def test_plug_drops_each_passive_party_as_often_as_it_should(probability):
    world = Small("plug", labelled=(1, 2), drop_probability=probability)
    dropped = [
        [plug._dropped(step, world.context(k)) for step in range(NUM_STEPS)] for k in range(3)
    ]
    assert dropped[0] == dropped[1] == dropped[2], "everybody draws the same"
    masks = np.array(dropped[0])
    assert not (masks >> 1 & 1).any(), "the active party is never dropped"
    error = 4 * np.sqrt(probability * (1 - probability) / NUM_STEPS)
    for client in (0, 2):
        assert (masks >> client & 1).mean() == pytest.approx(probability, abs=error)
    both = ((masks & 0b101) == 0b101).mean()
    assert both == pytest.approx(probability**2, abs=error), "one regardless of the other"


def test_plug_sees_zeros_in_place_of_whom_it_drops():
    world = Small("plug", drop_probability=0.5)
    steps = [s for s in range(50) if plug._dropped(s, world.context(0)) == 0b100]
    assert steps
    before = world.parameters()
    world.oracle.step(steps[0], 0b111)
    after = world.parameters()
    changed = {name[0] for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"0", "1"}


def vote(world, client, choices):
    """What a client sends that chooses these classes."""
    votes_nd = torch.zeros(len(choices), DIM)
    votes_nd[torch.arange(len(choices)), torch.tensor(choices)] = 1
    votes_nd[:, -ensemble.MARK_WIDTH :] = torch.tensor(world.learners[client].models["fusion"].mark)
    return votes_nd


def counted(world, *choices, chance=None):
    """What client 0 answers when the clients choose these, a list of choices each."""
    method, context = world.method, world.context(0)
    own, *others = [vote(world, k, each).numpy() for k, each in enumerate(choices)]
    answers = {k: (slice(None), rows) for k, rows in enumerate(others, start=1)}
    fused_nd, blocks = method.prediction.fuse(own, answers, context)
    fusion = world.learners[0].models["fusion"]
    return method.prediction.answers(
        fusion, torch.from_numpy(fused_nd), "multiclass", chance
    ), blocks


def test_the_majority_wins():
    outputs, blocks = counted(Small("ensemble"), [0, 0, 2, 1], [0, 1, 1, 1], [1, 0, 1, 1])
    assert outputs.argmax(dim=1).tolist() == [0, 0, 1, 1]
    assert blocks.tolist() == [0b111] * 4
    shares = torch.tensor([[2, 1, 0], [2, 1, 0], [0, 2, 1], [0, 3, 0]]) / 3
    assert torch.allclose(outputs.softmax(dim=1), shares, atol=2e-3)


def test_ties_are_fair_and_only_among_the_tied():
    chance = torch.Generator().manual_seed(1)
    outputs, _ = counted(Small("ensemble"), [0] * 3000, [2] * 3000, chance=chance)
    chosen = outputs.argmax(dim=1)
    assert not (chosen == 1).any()
    assert (chosen == 0).float().mean() == pytest.approx(0.5, abs=0.04)
    again, _ = counted(
        Small("ensemble"), [0] * 3000, [2] * 3000, chance=torch.Generator().manual_seed(1)
    )
    assert torch.equal(outputs, again)


def test_a_binary_tie_is_fair_and_a_majority_is_not_a_tie():
    method, context = Small("ensemble").method, Small("ensemble").context(0)
    ballot = ensemble.Ballot(nn.Linear(DIM, 1), 1, ("no", "yes"))
    models = nn.ModuleDict({"representation": nn.Identity(), "fusion": ballot})
    yes = method.prediction.embed(models, torch.full((1, DIM), 1.0), context, "binary").sign()[0, 0]
    assert yes in (1, -1)
    tied = torch.zeros(3000, DIM)
    chance = torch.Generator().manual_seed(2)
    share = (method.prediction.answers(ballot, tied, "binary", chance) > 0).float().mean()
    assert share == pytest.approx(0.5, abs=0.04)
    decided = torch.full((3000, DIM), 1 / 3)
    outputs = method.prediction.answers(ballot, decided, "binary", chance)
    assert (outputs > 0).all()
    assert outputs.sigmoid().numpy() == pytest.approx(2 / 3, abs=2e-3)


def test_a_vote_on_other_classes_counts_for_nothing():
    world = Small("ensemble")
    world.learners[2].models["fusion"] = ensemble.Ballot(nn.Linear(DIM, 3), 3, ("a", "b", "c"))
    outputs, blocks = counted(world, [0, 1], [0, 1], [2, 2])
    assert blocks.tolist() == [0b011] * 2
    assert outputs.argmax(dim=1).tolist() == [0, 1]
    assert outputs.softmax(dim=1)[:, 2].max() < 2e-3

    plan = world.plan(0, predicts=True)
    stack_bpd = torch.zeros(len(plan.rows), 3, DIM)
    for k, choice in ((0, 1), (1, 1), (2, 0)):
        stack_bpd[:, k] = vote(world, k, [choice] * len(plan.rows))
    evaluation = evaluation_of(world)
    evaluation.add(plan, stack_bpd)
    assert evaluation._predictions[:, plan.rows][evaluation._predicted[:, plan.rows]].tolist() == [
        1.0
    ] * int(evaluation._predicted.sum())


def test_nobody_has_more_than_one_vote():
    world = Small("ensemble")
    own, heavy = vote(world, 0, [0, 0]).numpy(), vote(world, 1, [1, 1]).numpy()
    heavy[0, 1], heavy[1, 2] = 100, 1
    fused_nd, blocks = world.method.prediction.fuse(
        own, {1: (slice(None), heavy)}, world.context(0)
    )
    assert blocks.tolist() == [0b001, 0b001]
    assert np.array_equal(fused_nd, own)


@pytest.mark.parametrize("precision", [torch.float32, torch.float16, torch.bfloat16])
def test_a_mark_survives_any_precision_of_the_wire(precision):
    for classes in (CLASSES, ("0", "1"), tuple(map(str, range(100)))):
        mark = torch.tensor(ensemble.Ballot(nn.Identity(), 3, classes).mark)
        assert torch.equal(mark.to(precision).float(), mark)


def test_the_order_and_the_names_of_classes_are_in_the_mark():
    marks = [
        tuple(ensemble.Ballot(nn.Identity(), num, classes).mark)
        for num, classes in ((3, CLASSES), (3, CLASSES[::-1]), (2, CLASSES[:2]), (1, CLASSES[:2]))
    ]
    assert len(set(marks)) == 4


def evaluation_of(world, client=0):
    rows = world.rows[client]
    groups, method, context = world.alignments[0].groups, world.method, world.context(client)
    return Evaluation(
        world.learners[client],
        subsets_to_score(client, groups, lambda mask: method.blocks.used(mask, context)),
        world.labels[rows].double().numpy(),
        np.ones(len(rows), dtype=bool),
    )


def test_standard_guesses_what_it_cannot_predict():
    world = Small("standard", observed=[*OBSERVED] * 60)
    plan = world.plan(0, predicts=True)
    evaluation = evaluation_of(world)
    stack_bpd = torch.zeros(len(plan.rows), 3, DIM)
    evaluation.add(plan, stack_bpd)
    scores = evaluation.scores(["bank", "shop", "telco"])
    assert set(scores["by_subset"]) == {"bank,shop,telco"}
    lacking = scores["by_observed_set"]["bank,shop"]
    assert lacking["accuracy"] == pytest.approx(1 / 3, abs=0.2)
    again = evaluation_of(world)
    again.add(plan, stack_bpd)
    assert again.scores(["bank", "shop", "telco"]) == scores


def test_standard_says_that_a_guess_used_no_block():
    world = Small("standard")
    own, other = np.ones((300, DIM), np.float32), np.ones((300, DIM), np.float32)
    answers = {1: (slice(None), other), 2: (np.arange(0, 300, 2), other[::2])}
    fused_nd, blocks = world.method.prediction.fuse(own, answers, world.context(0))
    assert blocks.tolist() == [0b111, 0] * 150
    chance = torch.Generator().manual_seed(4)
    fusion = world.learners[0].models["fusion"]
    with torch.no_grad():
        outputs = world.method.prediction.answers(
            fusion, torch.from_numpy(fused_nd), "multiclass", chance
        )
        expected = fusion(torch.ones(DIM))
    assert torch.allclose(outputs[::2], expected)
    guessed = outputs[1::2].argmax(dim=1).bincount(minlength=3)
    assert guessed.min() > 30
    values = world.method.prediction.answers(
        nn.Linear(DIM, 1), torch.from_numpy(fused_nd), "regression"
    )
    assert not values[1::2].any(), "the mean, when there is nothing to go by"


def test_predictions_leave_the_randomness_of_training_alone():
    """A daemon serves while it trains, in another thread, and torch has one generator for all."""
    world = Small("standard")
    lacking = torch.full((5, DIM), torch.nan)
    before = torch.get_rng_state()
    world.method.prediction.answers(
        world.learners[0].models["fusion"], lacking, "multiclass", torch.Generator()
    )
    counted(Small("ensemble"), [0], [1], chance=torch.Generator())
    assert torch.equal(before, torch.get_rng_state())
