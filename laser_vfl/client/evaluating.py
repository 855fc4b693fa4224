"""Scoring every subset of blocks after training, from representations of the test table."""

from collections.abc import Sequence
from typing import Any

from laser_vfl.client.block import Block
from laser_vfl.client.exchange import Exchange
from laser_vfl.core.evaluation import Evaluation, subsets_to_score
from laser_vfl.core.schedule import in_order
from laser_vfl.v1 import peer_pb2 as pb


def evaluate(exchange: Exchange, block: Block, roster: Sequence[str]) -> dict[str, Any] | None:
    """Take part in the evaluation; return the content of scores.json if this client has a head."""
    evaluation = _evaluation(exchange, block)
    _exchange_all(exchange, evaluation)
    if evaluation is None:
        return None
    heads = exchange.learner.place.heads
    num_left_out = sum(g.size for g in exchange.alignment.groups if not g.observed & heads)
    return {**evaluation.scores(roster), "num_samples_without_head": num_left_out}


def _evaluation(exchange: Exchange, block: Block) -> Evaluation | None:
    table, labels = block.test, block.labels
    if table is None or labels is None or table.targets is None or table.labelled is None:
        return None
    learner = exchange.learner
    return Evaluation(
        learner,
        subsets_to_score(learner.place.client, exchange.alignment.groups),
        table.targets.double().numpy(),
        table.labelled,
        target_std=labels.std if labels.task == "regression" else 1.0,
    )


def _exchange_all(exchange: Exchange, evaluation: Evaluation | None) -> None:
    """Send representations of the test rows, batch by batch; a head collects its predictions."""
    learner, kind = exchange.learner, pb.FRAME_KIND_EVALUATION
    for step in in_order(exchange.alignment.groups, learner.place.settings.batch_size):
        exchange.mail.check()
        exchange.mail.advance()
        plan = exchange.plan(step)
        if plan is None:
            continue
        with learner.evaluating():
            own_bd = learner.models["representation"](exchange.inputs(plan)).float()
        own_bd = exchange.host.to_host(own_bd)
        exchange.mail.send_rows(kind, plan.step, own_bd, plan.teachers)
        exchange.mail.drain()
        if evaluation is not None:
            evaluation.add(plan, exchange.stack(plan, kind, own_bd))
