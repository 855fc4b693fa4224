"""Scoring every subset of blocks after training, from representations of the test table."""

from collections.abc import Sequence
from typing import Any

from laser_vfl.client.block import Block
from laser_vfl.client.exchange import Exchange
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.evaluation import Evaluation, orders_to_score, scored_subsets
from laser_vfl.core.learner import Learner
from laser_vfl.core.noise import Phase
from laser_vfl.core.schedule import Step
from laser_vfl.core.subsets import has
from laser_vfl.v1 import peer_pb2 as pb


def begin_evaluation(
    learner: Learner, block: Block, alignment: ClientAlignment
) -> Evaluation | None:
    """Return what collects a head's predictions; None without a head or a test table."""
    table, labels = block.test, block.labels
    if table is None or labels is None or table.targets is None or table.labelled is None:
        return None
    if not has(learner.place.heads, learner.place.client):
        return None
    return Evaluation(
        learner,
        scored_subsets(learner, alignment.groups),
        table.targets.double().numpy(),
        table.labelled,
        target_std=labels.std if labels.task == "regression" else 1.0,
    )


def evaluate_step(
    exchange: Exchange, step: Step, participants: int, evaluation: Evaluation | None
) -> None:
    """Send representations of a batch of test rows; a head collects its predictions."""
    learner, mail, kind = exchange.learner, exchange.mail, pb.FRAME_KIND_EVALUATION
    plan = learner.plan(step, exchange.alignment, participants, predicts=True)
    if plan is None:
        return
    own_bd = exchange.host.to_host(learner.embed(exchange.inputs(plan)))
    sent_bd = learner.released(own_bd, Phase.EVALUATION, plan.step)
    exchange.send(kind, plan, sent_bd)
    if not plan.has_head:
        mail.wait_for_acknowledgements(plan.step, [share.peer for share in plan.teachers])
        return
    stack_bpd = exchange.stack(plan, kind, own_bd)
    heads = learner.place.heads
    mail.acknowledge(plan.step, [s.peer for s in plan.shares if not has(heads, s.peer)])
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
    heads = learner.place.heads
    num_left_out = sum(g.size for g in alignment.groups if not g.observed & heads)
    orders = orders_to_score(learner.place, alignment.groups)
    return {
        **evaluation.scores(roster),
        "num_samples_without_head": num_left_out,
        "orders": [[roster[client] for client in order] for order in orders],
    }
