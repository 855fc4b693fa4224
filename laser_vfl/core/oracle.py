"""The whole federation in one process, with ordinary autograd: what a real run must equal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.exchange import (
    columns_at,
    columns_spread,
    crossing,
    fan_out,
    fan_out_summed,
    rows_at,
    spread,
)
from laser_vfl.core.joint_components import JointComponents
from laser_vfl.core.joint_svd import Chunk
from laser_vfl.core.learner import Learner
from laser_vfl.core.noise import Phase
from laser_vfl.core.plan import Plan, Share
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.timeline import Timeline

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


class Oracle:
    """Trains all members on one graph: one loss, one backward, an optimiser step for each."""

    def __init__(self, members: Mapping[int, Member], settings: TrainingSettings) -> None:
        self._members = dict(sorted(members.items()))
        self._settings = settings
        groups = next(iter(self._members.values())).alignment.groups
        num_clients = next(iter(self._members.values())).learner.place.num_clients
        self.timeline = Timeline(settings, groups, num_clients)
        self.num_steps = self.timeline.num_steps

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
        return [
            self.step(t, everyone if participants is None else participants(t))
            for t in range(self.num_steps if num_steps is None else num_steps)
        ]

    def step(self, number: int, participants: int, appliers: int | None = None) -> dict[int, float]:
        """Do one step and return the loss of every head in it.

        All participants compute. Of these, only `appliers` apply it, without them all do; the
        others drop it without a trace.
        """
        moment = self.timeline.moment(number)
        if moment.chunk is not None:
            self._exchange(moment.chunk, participants, appliers)
            return {}
        plans = self._plans(number, participants)
        if moment.stage == "distillation":
            self._distil(plans, moment.progress, appliers)
            return {}
        dropping = [c for c in plans if appliers is not None and not has(appliers, c)]
        for client in dropping:
            self._members[client].learner.begin_step()
        losses = self._losses(plans)
        if losses:
            torch.autograd.backward(list(losses.values()))
        for client in plans:
            learner = self._members[client].learner
            if client in dropping:
                learner.drop_step()
            else:
                learner.update(moment.progress)
        return {client: loss.item() for client, loss in losses.items()}

    def _exchange(self, chunk: Chunk, participants: int, appliers: int | None) -> None:
        """Have a chunk shown by both parties and gathered, or turned and kept."""
        if chunk.clients & ~participants:
            return
        applying = participants if appliers is None else appliers
        computing = self._components(chunk.computer)
        if chunk.upward:
            parts = [
                self._components(k).shown(self._members[k].inputs, chunk, _KEY, _KEY)
                for k in chunk.parties
            ]
            if has(applying, chunk.computer):
                computing.gather(chunk, [self._crossed(part) for part in parts])
            return
        turned = self._crossed(computing.turned(chunk))
        for k in chunk.parties:
            if has(applying, k):
                self._components(k).keep(chunk, turned)

    def _crossed(self, rows: torch.Tensor) -> torch.Tensor:
        return crossing(rows, self._settings.wire_precision)

    def _components(self, client: int) -> JointComponents:
        scratch = self._members[client].learner.scratch
        assert scratch is not None
        return scratch

    def _distil(self, plans: Mapping[int, Plan], progress: float, appliers: int | None) -> None:
        for client, plan in plans.items():
            if appliers is None or has(appliers, client):
                member = self._members[client]
                member.learner.distil(member.inputs[torch.from_numpy(plan.rows)], plan, progress)

    def losses(self, number: int, participants: int) -> dict[int, torch.Tensor]:
        """Return the loss of every head in a step, as functions of all members' parameters."""
        return self._losses(self._plans(number, participants))

    def _losses(self, plans: Mapping[int, Plan]) -> dict[int, torch.Tensor]:
        copies = {client: self._represent(plan) for client, plan in plans.items()}
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
            losses[client] = member.learner.loss(
                plan.step,
                member.learner.draw_tasks(plan),
                torch.stack(columns, dim=1),
                member.targets[rows],
                member.label_weights[rows],
            )
        return losses

    def _plans(self, number: int, participants: int) -> dict[int, Plan]:
        step = self.timeline.moment(number).step
        assert step is not None
        plans = {
            client: member.learner.plan(step, member.alignment, participants)
            for client, member in self._members.items()
        }
        return {client: plan for client, plan in plans.items() if plan is not None}

    def _represent(self, plan: Plan) -> dict[int, torch.Tensor]:
        """Return a copy of a representation for each head that uses it."""
        member = self._members[plan.client]
        peers = [share.peer for share in plan.teachers]
        own = [plan.client] if plan.has_head else []
        representation_bd = member.learner.represent(
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
        rows_rc = crossing(
            columns_at(rows_at(representation_bd, sent.positions), there.columns(plan.client)),
            self._settings.wire_precision,
            masked_gradients=self._settings.masked_gradients,
        )
        rows_rd = columns_spread(rows_rc, here.columns(sender.client), own_width)
        return spread(rows_rd, taken.positions, len(plan.rows))


def _share_with(shares: Sequence[Share], peer: int) -> Share:
    return next(share for share in shares if share.peer == peer)
