"""Training as one client does it: for each step, represent, send, wait, learn, send, wait, update."""

import math
from typing import Protocol

import torch

from laser_vfl.client.exchange import Exchange
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.exchange import rows_at, spread, sum_in_order
from laser_vfl.core.plan import Plan
from laser_vfl.core.schedule import Schedule
from laser_vfl.v1 import peer_pb2 as pb


class StepWatcher(Protocol):
    """Whoever wants to know of every step."""

    def step_done(self, next_step: int, loss: float | None) -> None:
        """Everything before `next_step` is done."""


async def train(exchange: Exchange, schedule: Schedule, watcher: StepWatcher) -> None:
    """Do every step of the run in which this client takes part."""
    settings = exchange.learner.place.settings
    for number in range(settings.epochs * schedule.steps_per_epoch):
        plan = exchange.plan(schedule.step(number))
        loss = None
        if plan is not None:
            progress = number // schedule.steps_per_epoch / settings.epochs
            loss = await _train_step(exchange, plan, progress)
        watcher.step_done(number + 1, loss)


async def _train_step(exchange: Exchange, plan: Plan, progress: float) -> float | None:
    learner, host, links = exchange.learner, exchange.host, exchange.links
    num_rows, step = len(plan.rows), plan.step
    representation_bd = learner.represent(exchange.inputs(plan), step)
    own_bd = host.to_host(representation_bd.detach())
    exchange.send_representation(plan, pb.FRAME_KIND_REPRESENTATION, own_bd)

    gradients: dict[int, torch.Tensor] = {}
    loss_value: float | None = None
    if plan.has_head:
        await links.flush()
        tasks = learner.draw_tasks(plan)
        stack_bpd = await exchange.stack(plan, pb.FRAME_KIND_REPRESENTATION, own_bd)
        stack_bpd.requires_grad_()
        loss = learner.loss(step, tasks, stack_bpd, *_labels(exchange, plan))
        loss.backward()  # type: ignore[no-untyped-call]
        loss_value = _finite(loss.item(), step)
        assert stack_bpd.grad is not None
        gradient_bpd = host.to_host(stack_bpd.grad)
        for share in plan.shares:
            column = gradient_bpd[:, plan.blocks.index(share.peer)]
            links.send(share.peer, pb.FRAME_KIND_GRADIENT, step, rows_at(column, share.positions))
        gradients[plan.client] = gradient_bpd[:, plan.blocks.index(plan.client)]
    for share in plan.teachers:
        received = await links.receive(
            share.peer, pb.FRAME_KIND_GRADIENT, step, (share.num_rows, own_bd.shape[1])
        )
        gradients[share.peer] = spread(received, share.positions, num_rows)
    total_bd = sum_in_order(gradients[client] for client in sorted(gradients))
    representation_bd.backward(host.to_device(total_bd))  # type: ignore[no-untyped-call]
    learner.update(progress)
    return loss_value


def _labels(exchange: Exchange, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    table = exchange.table
    assert table.targets is not None
    assert table.label_weights is not None
    rows = torch.from_numpy(plan.rows)
    return exchange.host.to_device(table.targets[rows]), exchange.host.to_device(
        table.label_weights[rows]
    )


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise TrainingStopped(
            f"the loss of step {step} is {loss}",
            hint="lower optimizer.lr here or at the other clients, and look at the features' scale",
        )
    return loss
