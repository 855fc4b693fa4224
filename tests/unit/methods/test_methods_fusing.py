"""Predicting from the blocks at hand: a method's `fuse` and `answers` equal its evaluation."""

import numpy as np
import pytest
import torch
from methods_world import OBSERVED, Small

from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.task_sampling import all_tasks

METHODS = ("laser", "local", "standard", "ensemble", "combinatorial", "plug")


def shown(world, client, to):
    """What a client sends to another of its rows, as the daemons cut it."""
    rows_nd = world.learners[client].embed(world.features[world.rows[client], client])
    columns = world.learners[client].columns(to)
    return rows_nd if columns is None else rows_nd[:, columns]


def served(world, client, up):
    """Predict all rows of a client from those who are up: outputs, and whose blocks they used."""
    learner, context, rows = world.learners[client], world.context(client), world.rows[client]
    own_nd = learner.embed(world.features[rows, client]).numpy()
    answers = {}
    for k in range(world.num_clients):
        if k in up and world.method.blocks.asks(context) >> k & 1:
            both = [n for n in rows if k in world.observed[n]]
            places = np.array([rows.index(n) for n in both])
            at = [world.rows[k].index(n) for n in both]
            answers[k] = (places, shown(world, k, client)[at].numpy())
    fused_nd, blocks = world.method.prediction.fuse(own_nd, answers, context)
    assert fused_nd.dtype == np.float32
    assert fused_nd.shape == (len(rows), world.method.prediction.fused_width(context))
    with learner.evaluating():
        outputs = world.method.prediction.answers(
            learner.models["fusion"], torch.from_numpy(fused_nd), "multiclass"
        )
    return outputs, blocks


def plain(world, client, sample, blocks):
    """The outputs for a sample from some blocks, one prediction at a time."""
    models = [learner.models for learner in world.learners]
    method, mask = world.settings.method, mask_of(blocks)
    head, inputs = models[client]["fusion"], world.features[sample]
    if method == "combinatorial":
        parts = [models[i]["representation"].by_subset[mask](inputs[i]) for i in blocks]
        return head.by_subset[mask](sum(parts) / len(blocks))
    num = world.num_clients if method == "plug" else len(blocks)
    parts = [models[i]["representation"](inputs[i]) for i in sorted(blocks)]
    return head(sum(parts) / num)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "ensemble"])
@pytest.mark.parametrize("up", [{1, 2}, {2}, set()], ids=["all", "one", "alone"])
def test_predictions_from_the_blocks_at_hand(method, up):
    world = Small(method, labelled=(0, 2))
    world.oracle.run(3)
    outputs, used = served(world, 0, up)
    for n, output, mask in zip(world.rows[0], outputs, used.tolist(), strict=True):
        blocks = {0} if method == "local" else OBSERVED[n] & (up | {0})
        if method == "standard" and blocks != {0, 1, 2}:
            assert mask == 0
            continue
        assert mask == mask_of(blocks)
        with torch.no_grad():
            assert torch.allclose(output, plain(world, 0, n, blocks), atol=1e-5)


@pytest.mark.parametrize("up", [{1, 2}, {2}, set()], ids=["all", "one", "alone"])
def test_ensemble_asks_those_who_have_labels(up):
    world = Small("ensemble", labelled=(0, 2))
    world.oracle.run(3)
    outputs, used = served(world, 0, up)
    assert used.tolist() == [mask_of(OBSERVED[n] & ({0} | up & {2})) for n in world.rows[0]]
    for n, output, mask in zip(world.rows[0], outputs, used.tolist(), strict=True):
        with torch.no_grad():
            votes = [int(plain(world, k, n, {k}).argmax()) for k in (0, 2) if mask >> k & 1]
        assert int(output.argmax()) in votes


@pytest.mark.parametrize("method", METHODS)
def test_evaluation_says_the_same_as_serving(method):
    """The outputs of `predictions` for a subset are those of `answers` when just these are up."""
    world = Small(method, labelled=(0, 1, 2), observed=[{0, 1, 2}] * 5)
    world.oracle.run(3)
    learner, context = world.learners[0], world.context(0)
    plan = world.plan(0, predicts=True)
    width = learner.embed(world.features[:, 0]).shape[1]
    stack_bpd = torch.zeros(5, len(plan.blocks), width)
    for column, k in enumerate(plan.blocks):
        rows_nd = shown(world, k, 0) if k else learner.embed(world.features[:, 0])
        at = slice(None) if not k or learner.columns(k) is None else learner.columns(k)
        order = [world.rows[k].index(n) for n in world.samples(plan)]
        stack_bpd[:, column, at] = rows_nd[order]
    for subset in (0b001, 0b011, 0b101, 0b111):
        if not world.method.blocks.has_predictor(subset, context):
            continue
        tasks, _ = all_tasks(plan, [subset])
        found = learner.predict(plan, tasks, stack_bpd)
        outputs, used = served(world, 0, {k for k in (1, 2) if subset >> k & 1})
        assert set(used.tolist()) == {subset}
        if method == "ensemble":
            assert torch.allclose(found, outputs.softmax(dim=1)[plan.rows], atol=3e-3)
        else:
            assert torch.allclose(found, outputs[plan.rows], atol=1e-5)
