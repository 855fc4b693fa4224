"""Training as one client does it: represent, send, wait, learn, send, wait, update."""

import math
from typing import Protocol

import torch

from laser_vfl.client.exchange import Exchange
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.exchange import spread, sum_in_order
from laser_vfl.core.plan import Plan
from laser_vfl.core.schedule import Schedule
from laser_vfl.v1 import peer_pb2 as pb


class StepWatcher(Protocol):
    """Whoever wants to know of every step."""

    def step_done(self, next_step: int, loss: float | None) -> None:
        """Everything before `next_step` is done."""


def train(exchange: Exchange, schedule: Schedule, watcher: StepWatcher) -> None:
    """Do every step of the run in which this client takes part."""
    epochs = exchange.learner.place.settings.epochs
    for number in range(epochs * schedule.steps_per_epoch):
        exchange.mail.check()
        plan = exchange.plan(schedule.step(number))
        loss = None
        if plan is not None:
            loss = _train_step(exchange, plan, number // schedule.steps_per_epoch / epochs)
        watcher.step_done(number + 1, loss)


def _train_step(exchange: Exchange, plan: Plan, progress: float) -> float | None:
    learner, host, mail = exchange.learner, exchange.host, exchange.mail
    representation_bd = learner.represent(exchange.inputs(plan), plan.step)
    own_bd = host.to_host(representation_bd.detach())
    mail.send_rows(pb.FRAME_KIND_REPRESENTATION, plan.step, own_bd, plan.teachers)

    gradients: dict[int, torch.Tensor] = {}
    loss = None
    if plan.has_head:
        loss, gradient_bpd = _learn(exchange, plan, own_bd)
        columns = {block: column for column, block in enumerate(plan.blocks)}
        mail.send_columns(pb.FRAME_KIND_GRADIENT, plan.step, gradient_bpd, columns, plan.shares)
        gradients[plan.client] = gradient_bpd[:, columns[plan.client]]

    received = mail.receive(pb.FRAME_KIND_GRADIENT, plan.step, plan.teachers, own_bd.shape[1])
    for share in plan.teachers:
        gradients[share.peer] = spread(received[share.peer], share.positions, len(plan.rows))
    total_bd = sum_in_order(gradients[client] for client in sorted(gradients))
    torch.autograd.backward(representation_bd, host.to_device(total_bd))
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


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise TrainingStopped(
            f"the loss of step {step} is {loss}",
            hint="lower optimizer.lr here or at the other clients, and look at the features' scale",
        )
    return loss
