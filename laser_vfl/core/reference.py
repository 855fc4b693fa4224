"""The whole federation in one process, with ordinary autograd: what a real run must equal."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.preparation import ExchangeStep, PreparationState
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.randomness import RandomStream
from laser_vfl.core.schedule.step_plan import Plan, Share
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.core.settings import AlgorithmSettings
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.training.gradients import (
    Thresholds,
    columns_at,
    columns_spread,
    crossing,
    fan_out,
    fan_out_summed,
    rows_at,
    spread,
)
from laser_vfl.core.training.learner import Learner
from laser_vfl.core.training.row_rounding import RowRounding
from laser_vfl.core.training.step_models import StepModels

_KEY = bytes(32)
"""Masks come off to the last bits, whatever their keys are."""


@dataclass(frozen=True)
class Member:
    """A client as the oracle sees it: everything at once, as nobody does in a real federation."""

    learner: Learner
    alignment: ClientAlignment
    inputs: torch.Tensor
    targets: torch.Tensor | None = None
    label_weights: torch.Tensor | None = None


@dataclass(frozen=True)
class _UnderWay:
    """A step that a member has computed and not applied yet."""

    step: int
    models: StepModels
    progress: float


class Oracle:
    """Trains all members on one graph: one loss, one backward, an optimiser step for each."""

    def __init__(self, members: Mapping[int, Member], settings: AlgorithmSettings) -> None:
        self._members = dict(sorted(members.items()))
        self._settings = settings
        groups = next(iter(self._members.values())).alignment.groups
        learner = next(iter(self._members.values())).learner
        self.timeline = Timeline(
            learner.method.preparation, settings, groups, learner.context.num_clients
        )
        self.num_steps = self.timeline.num_steps
        self._under_way: dict[int, deque[_UnderWay]] = {k: deque() for k in self._members}

    def run(
        self,
        num_steps: int | None = None,
        *,
        participants: Callable[[int], int] | None = None,
    ) -> list[dict[int, float]]:
        """Train for some or all steps and return the loss of every head in each.

        `participants` gives the members of each step; without it, everybody takes part in all.
        """
        everyone = mask_of(self._members)
        losses = [
            self.step(t, everyone if participants is None else participants(t))
            for t in range(self.num_steps if num_steps is None else num_steps)
        ]
        self.settle()
        return losses

    def settle(self, clients: Iterable[int] | None = None) -> None:
        """Apply the steps of some or all members that are still under way."""
        for client in self._members if clients is None else clients:
            self._apply_before(client, self.num_steps)

    def step(self, number: int, participants: int, appliers: int | None = None) -> dict[int, float]:
        """Do one step and return the loss of every head in it.

        All participants compute. Of these, only `appliers` apply it, without them all do; the
        others drop it without a trace.
        """
        scheduled = self.timeline.step(number)
        if scheduled.exchange is not None:
            self._exchange(scheduled.exchange, participants, appliers)
            return {}
        plans = self._plans(number, participants)
        for client in plans:
            self._apply_before(client, self.timeline.applied_before(number))
        if scheduled.kind == "alone":
            self._train_alone(plans, scheduled.progress, appliers)
            return {}
        models = {client: self._members[client].learner.begin_step() for client in plans}
        losses = self._losses(plans, models)
        if losses:
            torch.autograd.backward(list(losses.values()))
        for client in plans:
            if appliers is None or has(appliers, client):
                under_way = _UnderWay(number, models[client], scheduled.progress)
                self._under_way[client].append(under_way)
            else:
                self._members[client].learner.drop_step(models[client])
            self._apply_before(client, self.timeline.applied_before(number + 1))
        return {client: loss.item() for client, loss in losses.items()}

    def _apply_before(self, client: int, step: int) -> None:
        """Apply what a member has computed of the steps before `step`."""
        under_way, learner = self._under_way[client], self._members[client].learner
        while under_way and under_way[0].step < step:
            oldest = under_way.popleft()
            learner.apply_step(oldest.models, oldest.progress)

    def _exchange(self, exchange: ExchangeStep, participants: int, appliers: int | None) -> None:
        """Have the senders of an exchange send and the receivers keep what they get."""
        if exchange.clients & ~participants:
            return
        applying = participants if appliers is None else appliers
        sent = {
            k: crossing(
                self._preparing(k).outgoing(
                    exchange, self._members[k].inputs, lambda peer: _KEY, _KEY
                ),
                self._settings.wire_precision,
            )
            for k in exchange.senders
        }
        for k in exchange.receivers:
            if has(applying, k):
                self._preparing(k).incoming(exchange, sent)

    def _preparing(self, client: int) -> PreparationState:
        scratch = self._members[client].learner.scratch
        assert scratch is not None
        return scratch

    def _train_alone(
        self, plans: Mapping[int, Plan], progress: float, appliers: int | None
    ) -> None:
        for client, plan in plans.items():
            if appliers is None or has(appliers, client):
                member = self._members[client]
                inputs = member.inputs[torch.from_numpy(plan.rows)]
                member.learner.train_alone(inputs, plan, progress)

    def losses(self, number: int, participants: int) -> dict[int, torch.Tensor]:
        """Return the loss of every head in a step, as functions of all members' parameters."""
        plans = self._plans(number, participants)
        return self._losses(plans, {k: self._members[k].learner.begin_step() for k in plans})

    def _losses(
        self, plans: Mapping[int, Plan], models: Mapping[int, StepModels]
    ) -> dict[int, torch.Tensor]:
        copies = {client: self._represent(plan, models[client]) for client, plan in plans.items()}
        losses = {}
        for client, plan in plans.items():
            if not plan.has_head:
                continue
            member = self._members[client]
            assert member.targets is not None
            assert member.label_weights is not None
            own_width = copies[client][client].shape[1]
            columns = [
                copies[client][client]
                if block == client
                else self._received(plan, plans[block], copies[block][client], own_width)
                for block in plan.blocks
            ]
            rows = torch.from_numpy(plan.rows)
            losses[client] = models[client].loss(
                plan.step,
                member.learner.draw_tasks(plan),
                torch.stack(columns, dim=1),
                member.targets[rows],
                member.label_weights[rows],
            )
        return losses

    def _plans(self, number: int, participants: int) -> dict[int, Plan]:
        step = self.timeline.step(number).batch
        assert step is not None
        plans = {
            client: member.learner.plan(step, member.alignment, participants)
            for client, member in self._members.items()
        }
        return {client: plan for client, plan in plans.items() if plan is not None}

    def _represent(self, plan: Plan, models: StepModels) -> dict[int, torch.Tensor]:
        """Return a copy of a representation for each head that uses it."""
        member = self._members[plan.client]
        peers = [share.peer for share in plan.head_peers]
        own = [plan.client] if plan.has_head else []
        representation_bd = models.represent(
            member.inputs[torch.from_numpy(plan.rows)], plan.step, plan.patterns
        )
        if self._settings.masked_gradients:
            consumers = [*own, *peers]
            parts = fan_out_summed(representation_bd, len(peers), has_own=plan.has_head)
        else:
            consumers = sorted([*own, *peers])
            parts = fan_out(representation_bd, len(consumers))
        copies = dict(zip(consumers, parts, strict=True))
        for peer in peers:
            copies[peer] = member.learner.released(copies[peer], Phase.TRAINING, plan.step)
        return copies

    def _received(
        self, plan: Plan, sender: Plan, representation_bd: torch.Tensor, own_width: int
    ) -> torch.Tensor:
        """Return what the head of `plan` sees of a sender's representation."""
        sent = _share_with(sender.shares, plan.client)
        taken = _share_with(plan.shares, sender.client)
        there, here = self._members[sender.client].learner, self._members[plan.client].learner

        def in_frame(whole_bd: torch.Tensor) -> torch.Tensor:
            return columns_at(rows_at(whole_bd, sent.positions), there.columns(plan.client))

        thresholds = None
        if self._settings.rounds_rows:
            rounding = RowRounding(self._settings.seed, plan.step)
            back_bd = rounding.thresholds(
                plan.client, RandomStream.ROUNDED_GRADIENTS, len(plan.rows), own_width
            )
            thresholds = Thresholds(
                in_frame(
                    rounding.thresholds(
                        sender.client,
                        RandomStream.ROUNDED_REPRESENTATIONS,
                        *representation_bd.shape,
                    )
                ),
                columns_at(rows_at(back_bd, taken.positions), here.columns(sender.client)),
            )
        rows_rc = crossing(
            in_frame(representation_bd),
            self._settings.wire_precision,
            masked_gradients=self._settings.masked_gradients,
            thresholds=thresholds,
        )
        rows_rd = columns_spread(rows_rc, here.columns(sender.client), own_width)
        return spread(rows_rd, taken.positions, len(plan.rows))


def _share_with(shares: Sequence[Share], peer: int) -> Share:
    return next(share for share in shares if share.peer == peer)
