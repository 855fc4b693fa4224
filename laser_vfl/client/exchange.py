"""Working through the batches of a table together with the other clients."""

from dataclasses import dataclass

import torch

from laser_vfl.client.block import EncodedTable
from laser_vfl.client.device import Host
from laser_vfl.client.inbox import Kind
from laser_vfl.client.mail import Mail, NoMail
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.learner import Learner
from laser_vfl.core.plan import Plan, plan_step
from laser_vfl.core.schedule import Step


@dataclass(frozen=True)
class Exchange:
    """One client's learner and one of its tables, with the means to reach the others."""

    learner: Learner
    host: Host
    mail: Mail | NoMail
    table: EncodedTable
    alignment: ClientAlignment

    def plan(self, step: Step, participants: int) -> Plan | None:
        """Return what this client does in a step; None when nothing there concerns it."""
        plan = plan_step(
            step,
            self.alignment,
            client=self.learner.place.client,
            participants=participants,
            heads=self.learner.place.heads,
        )
        return plan if plan is not None and plan.learns else None

    def inputs(self, plan: Plan) -> torch.Tensor:
        """Return the features of a step's rows, on the device."""
        return self.host.to_device(self.table.inputs[torch.from_numpy(plan.rows)])

    def labels(self, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the targets of a step's rows and their weights, on the device."""
        assert self.table.targets is not None
        assert self.table.label_weights is not None
        rows = torch.from_numpy(plan.rows)
        return (
            self.host.to_device(self.table.targets[rows]),
            self.host.to_device(self.table.label_weights[rows]),
        )

    def stack(self, plan: Plan, kind: Kind, own_bd: torch.Tensor) -> torch.Tensor:
        """Wait for all representations and return them as (b, p, d) on the device."""
        received = self.mail.receive(kind, plan.step, plan.shares, own_bd.shape[1])
        stack_bpd = self.host.blank(len(plan.rows), len(plan.blocks), own_bd.shape[1])
        stack_bpd[:, plan.blocks.index(plan.client)] = own_bd
        for share in plan.shares:
            column = plan.blocks.index(share.peer)
            if share.positions is None:
                stack_bpd[:, column] = received[share.peer]
            else:
                stack_bpd[torch.from_numpy(share.positions), column] = received[share.peer]
        return self.host.to_device(stack_bpd)
