"""Working through the batches of a table together with the other clients."""

from dataclasses import dataclass

import torch

from laser_vfl.client.block import EncodedTable
from laser_vfl.client.device import Host
from laser_vfl.client.links import Kind, Links
from laser_vfl.client.view import MemberView
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.exchange import rows_at
from laser_vfl.core.learner import Learner
from laser_vfl.core.plan import Plan, plan_step
from laser_vfl.core.schedule import Step


@dataclass(frozen=True)
class Exchange:
    """What one client needs to work through the batches of a table together with the others."""

    learner: Learner
    links: Links
    host: Host
    view: MemberView
    table: EncodedTable
    alignment: ClientAlignment

    def plan(self, step: Step) -> Plan | None:
        """Return what this client does in a step; None when nothing of its concern happens there."""
        plan = plan_step(
            step,
            self.alignment,
            client=self.learner.place.client,
            participants=self.view.participants(step.number),
            heads=self.learner.place.heads,
        )
        return plan if plan is not None and plan.learns else None

    def inputs(self, plan: Plan) -> torch.Tensor:
        """Return the features of a step's rows, on the device."""
        return self.host.to_device(self.table.inputs[torch.from_numpy(plan.rows)])

    def send_representation(self, plan: Plan, kind: Kind, own_bd: torch.Tensor) -> None:
        """Push this client's rows to every head that shares some of them."""
        for share in plan.teachers:
            self.links.send(share.peer, kind, plan.step, rows_at(own_bd, share.positions))

    async def stack(self, plan: Plan, kind: Kind, own_bd: torch.Tensor) -> torch.Tensor:
        """Wait for all representations and return them as (b, p, d) on the device."""
        width = own_bd.shape[1]
        stack_bpd = self.host.blank(len(plan.rows), len(plan.blocks), width)
        columns = {block: column for column, block in enumerate(plan.blocks)}
        stack_bpd[:, columns[plan.client]] = own_bd
        for share in plan.shares:
            received = await self.links.receive(
                share.peer, kind, plan.step, (share.num_rows, width)
            )
            where = slice(None) if share.positions is None else torch.from_numpy(share.positions)
            stack_bpd[where, columns[share.peer]] = received
        return self.host.to_device(stack_bpd)
