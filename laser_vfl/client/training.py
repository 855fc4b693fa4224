"""Training as one client does it: represent, send, wait, learn, send, wait, update."""

import math
from collections.abc import Mapping

import torch

from laser_vfl.client.exchange import Exchange
from laser_vfl.client.mail import Mail, diverged
from laser_vfl.core.exchange import columns_at, columns_spread, spread, sum_in_order
from laser_vfl.core.noise import Phase
from laser_vfl.core.plan import Plan
from laser_vfl.v1 import peer_pb2 as pb


def train_step(exchange: Exchange, plan: Plan, progress: float) -> float | None:
    """Do one step; raises Interrupted, with nothing changed, if it has to be dropped."""
    learner = exchange.learner
    learner.begin_step()
    try:
        return _step(exchange, plan, progress)
    except BaseException:
        learner.drop_step()
        raise


def _step(exchange: Exchange, plan: Plan, progress: float) -> float | None:
    learner, host, mail = exchange.learner, exchange.host, exchange.mail
    assert isinstance(mail, Mail)
    is_masked = learner.place.settings.masked_gradients
    representation_bd = learner.represent(exchange.inputs(plan), plan.step, plan.patterns)
    own_bd = host.to_host(representation_bd.detach())
    if not math.isfinite(own_bd.sum()):
        raise diverged(f"the representation of step {plan.step} is not finite")
    sent_bd = learner.released(own_bd, Phase.TRAINING, plan.step)
    exchange.send(pb.FRAME_KIND_REPRESENTATION, plan, sent_bd)

    gradients: dict[int, torch.Tensor] = {}
    loss = None
    if plan.has_head:
        loss, gradient_bpd = _learn(exchange, plan, own_bd)
        columns = {block: column for column, block in enumerate(plan.blocks)}
        if is_masked:
            mail.send_masked(plan, gradient_bpd, columns)
        else:
            parts = {
                share.peer: columns_at(
                    gradient_bpd[:, columns[share.peer]], learner.columns(share.peer)
                )
                for share in plan.shares
            }
            mail.send_each(pb.FRAME_KIND_GRADIENT, plan.step, parts, plan.shares)
        gradients[plan.client] = gradient_bpd[:, columns[plan.client]]

    receive = _receive_sum if is_masked else _receive_each
    total_bd = receive(exchange, plan, gradients, own_bd.shape[1])
    torch.autograd.backward(representation_bd, host.to_device(total_bd))
    mail.check()
    learner.update(progress)
    return loss


def _learn(exchange: Exchange, plan: Plan, own_bd: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Run the head on all its tasks; return its loss and the gradient of every representation."""
    learner = exchange.learner
    tasks = learner.draw_tasks(plan)
    stack_bpd = exchange.stack(plan, pb.FRAME_KIND_REPRESENTATION, own_bd)
    stack_bpd.requires_grad_()
    loss = learner.loss(plan.step, tasks, stack_bpd, *exchange.labels(plan))
    torch.autograd.backward(loss)
    assert stack_bpd.grad is not None
    return _finite(loss.item(), plan.step), exchange.host.to_host(stack_bpd.grad)


def _receive_each(
    exchange: Exchange, plan: Plan, own: Mapping[int, torch.Tensor], width: int
) -> torch.Tensor:
    """Wait for every head's gradient; return the sum with the own one, in roster order."""
    mail, learner = exchange.mail, exchange.learner
    received = mail.receive(pb.FRAME_KIND_GRADIENT, plan.step, plan.teachers, exchange.width)
    gradients = dict(own)
    for share in plan.teachers:
        rows_rd = columns_spread(received[share.peer], learner.columns(share.peer), width)
        gradients[share.peer] = spread(rows_rd, share.positions, len(plan.rows))
    return sum_in_order(gradients[client] for client in sorted(gradients))


def _receive_sum(
    exchange: Exchange, plan: Plan, own: Mapping[int, torch.Tensor], width: int
) -> torch.Tensor:
    """Wait for the sum of the others' gradients; return the own one plus it."""
    mail = exchange.mail
    assert isinstance(mail, Mail)
    parts = list(own.values())
    if plan.teachers:
        kind, num_rows = pb.FRAME_KIND_GRADIENT, len(plan.rows)
        parts.append(mail.receive_sum(kind, plan.step, plan.teachers, num_rows, width))
    return sum_in_order(parts)


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise diverged(f"the loss of step {step} is not finite")
    return loss
