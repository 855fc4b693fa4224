"""Scoring every subset of blocks after training, from representations of the test table."""

from collections.abc import Sequence
from typing import Any

from laser_vfl.client.tables.block import Block
from laser_vfl.client.training.training_step import StepContext
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.evaluation.subset_scores import Evaluation, orders_to_score, scored_subsets
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.subsets import has
from laser_vfl.core.training.learner import Learner


def begin_evaluation(
    learner: Learner, block: Block, alignment: ClientAlignment
) -> Evaluation | None:
    """Return what collects a head's predictions; None without a head or a test table."""
    table, labels = block.test, block.labels
    if table is None or labels is None or table.targets is None or table.labelled is None:
        return None
    if not has(learner.context.heads, learner.context.client):
        return None
    return Evaluation(
        learner,
        scored_subsets(learner, alignment.groups),
        table.targets.double().numpy(),
        table.labelled,
        target_std=labels.std if labels.task == "regression" else 1.0,
    )


def evaluate_step(
    context: StepContext, step: Step, participants: int, evaluation: Evaluation | None
) -> None:
    """Send representations of a batch of test rows; a head collects its predictions.

    A client without a head gets no gradient for an answer, so heads acknowledge what it sends.
    """
    learner, transport = context.learner, context.transport
    plan = learner.plan(step, context.alignment, participants, predicts=True)
    if plan is None:
        return
    own_bd = context.host.to_host(learner.embed(context.inputs(plan)))
    sent_bd = learner.released(own_bd, Phase.EVALUATION, plan.step)
    transport.send_representations(plan, sent_bd, Phase.EVALUATION)
    if not plan.has_head:
        transport.wait_for_acknowledgements(plan.step, [s.peer for s in plan.head_peers])
        return
    stack_bpd = context.gather(plan, own_bd, Phase.EVALUATION)
    heads = learner.context.heads
    transport.acknowledge(plan.step, [s.peer for s in plan.shares if not has(heads, s.peer)])
    transport.flush()
    if evaluation is not None:
        evaluation.add(plan, stack_bpd)


def scores_of(
    evaluation: Evaluation | None,
    learner: Learner,
    alignment: ClientAlignment,
    roster: Sequence[str],
) -> dict[str, Any] | None:
    """Return the content of scores.json if this client has a head."""
    if evaluation is None:
        return None
    heads = learner.context.heads
    num_left_out = sum(g.size for g in alignment.groups if not g.observed & heads)
    orders = orders_to_score(learner.context, alignment.groups)
    return {
        **evaluation.scores(roster),
        "num_samples_without_head": num_left_out,
        "orders": [[roster[client] for client in order] for order in orders],
    }
