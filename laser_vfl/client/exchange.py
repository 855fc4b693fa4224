"""Working through the batches of a table together with the other clients."""

from dataclasses import dataclass

import torch

from laser_vfl.client.block import EncodedTable
from laser_vfl.client.device import Host
from laser_vfl.client.inbox import Kind
from laser_vfl.client.mail import Mail, NoMail
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.exchange import columns_at, columns_spread
from laser_vfl.core.learner import Learner
from laser_vfl.core.plan import Plan


@dataclass(frozen=True)
class Exchange:
    """One client's learner and one of its tables, with the means to reach the others."""

    learner: Learner
    host: Host
    mail: Mail | NoMail
    table: EncodedTable
    alignment: ClientAlignment

    @property
    def width(self) -> int:
        """How wide the rows are that clients send each other."""
        place = self.learner.place
        return place.settings.exchanged_width(place.num_clients)

    def send(self, kind: Kind, plan: Plan, tensor_bd: torch.Tensor) -> None:
        """Push to each teacher what concerns it of the rows that it holds too."""
        columns = {share.peer: self.learner.columns(share.peer) for share in plan.teachers}
        if all(columns[share.peer] is None for share in plan.teachers):
            self.mail.send_rows(kind, plan.step, tensor_bd, plan.teachers)
            return
        for share in plan.teachers:
            rows_bc = columns_at(tensor_bd, columns[share.peer])
            self.mail.send_rows(kind, plan.step, rows_bc, [share])

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
        received = self.mail.receive(kind, plan.step, plan.shares, self.width)
        stack_bpd = self.host.blank(len(plan.rows), len(plan.blocks), own_bd.shape[1])
        stack_bpd[:, plan.blocks.index(plan.client)] = own_bd
        for share in plan.shares:
            column = plan.blocks.index(share.peer)
            rows_rd = columns_spread(
                received[share.peer], self.learner.columns(share.peer), own_bd.shape[1]
            )
            if share.positions is None:
                stack_bpd[:, column] = rows_rd
            else:
                stack_bpd[torch.from_numpy(share.positions), column] = rows_rd
        return self.host.to_device(stack_bpd)
