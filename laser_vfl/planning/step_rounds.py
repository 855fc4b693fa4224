"""The frames of each step of a run, from the schedule and plans that clients follow."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.preparation import ExchangeStep
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.schedule.step_plan import Plan, Share, plan_step
from laser_vfl.core.schedule.timeline import ScheduledStep
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.planning.clocks import Message, Round
from laser_vfl.transport.frame_overhead import (
    FrameName,
    frame_message_bytes,
    link_bytes,
    tcp_bytes,
    tensor_bytes,
)

FORWARD, HEAD, BACKWARD = 0.35, 0.3, 0.35
"""Rough shares of the computing in a step; they decide who waits for whom."""


class StepRounds:
    """Tells for each step of a run who computes, and who sends how much to whom."""

    def __init__(
        self,
        settings: TrainingSettings,
        roster: Sequence[str],
        labelled: int,
        *,
        tls: bool = True,
    ) -> None:
        self._settings = settings
        self._roster = roster
        self._method = method_named(settings.method)
        self._tls = tls
        self._width = settings.exchanged_width(len(roster))
        self._everyone = (1 << len(roster)) - 1
        self.heads = self._method.blocks.heads(labelled)
        self._contexts = [
            FederationContext(
                client=k, num_clients=len(roster), heads=self.heads, settings=settings
            )
            for k in range(len(roster))
        ]

    def step(
        self, scheduled: ScheduledStep, number: int, alignments: Sequence[ClientAlignment]
    ) -> list[Round]:
        """Return the rounds of a step of a run."""
        if scheduled.exchange is not None:
            return list(self._exchange(scheduled.exchange, number))
        assert scheduled.batch is not None
        plans = self.plans(scheduled.batch, alignments)
        if scheduled.kind == "alone":
            return [Round({plan.client: 1.0 for plan in plans})]
        return self._training(plans)

    def plans(
        self, step: Step, alignments: Sequence[ClientAlignment], *, predicts: bool = False
    ) -> list[Plan]:
        """Return the plans of the clients that take part in a step."""
        blocks = self._method.blocks
        uses = blocks.predicts_from if predicts else blocks.learns_from
        plans = (
            plan_step(
                step,
                alignments[context.client],
                client=context.client,
                participants=self._everyone,
                heads=self.heads,
                uses=partial(uses, context=context),
            )
            for context in self._contexts
        )
        return [plan for plan in plans if plan is not None and plan.learns]

    def evaluation(self, step: Step, alignments: Sequence[ClientAlignment]) -> list[Round]:
        """Return the rounds of a batch of test rows."""
        plans = self.plans(step, alignments, predicts=True)
        sent = [self._rows("evaluation", plan, plan.head_peers) for plan in plans]
        acknowledgements = [
            self._acknowledgement(plan.client, share.peer, plan.step)
            for plan in plans
            if plan.has_head
            for share in plan.shares
            if not has(self.heads, share.peer)
        ]
        return [
            Round({plan.client: FORWARD for plan in plans}, _flat(sent)),
            Round({plan.client: 0.0 for plan in plans}, tuple(acknowledgements)),
        ]

    def _training(self, plans: Sequence[Plan]) -> list[Round]:
        forward = [self._rows("representation", plan, plan.head_peers) for plan in plans]
        back = [self._rows("gradient", plan, plan.shares) for plan in plans if plan.has_head]
        return [
            Round({plan.client: FORWARD for plan in plans}, _flat(forward)),
            Round({plan.client: HEAD for plan in plans if plan.has_head}, _flat(back)),
            Round({plan.client: BACKWARD for plan in plans}),
        ]

    def _exchange(self, exchange: ExchangeStep, number: int) -> Iterator[Round]:
        """Yield the rounds of an exchange: the clients connect, send, and acknowledge."""
        bare = partial(self._acknowledgement, step=number)
        senders, receivers, meeting = exchange.senders, exchange.receivers, exchange.meeting
        if meeting:
            met = [bare(k, other) for k in meeting for other in meeting if other != k]
            yield Round(dict.fromkeys(meeting, 0.0), tuple(met))
        sent = [
            self._message(
                exchange.kind,
                k,
                other,
                number,
                exchange.num_rows,
                self._settings.representation_dim,
            )
            for k in senders
            for other in receivers
            if other != k
        ]
        yield Round(dict.fromkeys(senders, 1.0), tuple(sent))
        if exchange.is_acknowledged:
            others = [k for k in receivers if k not in senders]
            acknowledgements = [bare(k, sender) for k in others for sender in senders]
            yield Round(dict.fromkeys(others, 0.0), tuple(acknowledgements))

    def _rows(self, kind: FrameName, plan: Plan, shares: Sequence[Share]) -> list[Message]:
        return [
            self._message(kind, plan.client, share.peer, plan.step, share.num_rows, self._width)
            for share in shares
        ]

    def _message(
        self, kind: FrameName, sender: int, receiver: int, step: int, rows: int, width: int
    ) -> Message:
        is_masked = kind == "gradient" and self._settings.masked_gradients
        dtype = "int64" if is_masked else self._settings.wire_precision
        size = frame_message_bytes(
            kind, sender=self._roster[sender], step=step, rows=rows, width=width, dtype=dtype
        )
        return self._sent(sender, receiver, tensor_bytes(rows, width, dtype), size)

    def _acknowledgement(self, sender: int, receiver: int, step: int) -> Message:
        """Return a frame without a tensor, which acknowledges another."""
        size = frame_message_bytes("evaluated", sender=self._roster[sender], step=step)
        return self._sent(sender, receiver, 0, size)

    def _sent(self, sender: int, receiver: int, payload: int, size: int) -> Message:
        over_tcp = tcp_bytes(size, tls=self._tls)
        return Message(sender, receiver, payload, over_tcp, link_bytes(over_tcp))


def alignments_of(groups: Sequence[Group], num_clients: int) -> list[ClientAlignment]:
    """Return the alignments of all clients, with rows in the order of the groups."""
    places = [np.arange(group.size) for group in groups]
    return [
        ClientAlignment(
            tuple(groups),
            {g: places[g] for g, group in enumerate(groups) if has(group.observed, client)},
        )
        for client in range(num_clients)
    ]


def labelled_mask(names: Sequence[str], roster: Sequence[str]) -> int:
    """Return the mask of the clients with labels."""
    return mask_of(roster.index(name) for name in names)


def _flat(parts: Sequence[Sequence[Message]]) -> tuple[Message, ...]:
    return tuple(message for part in parts for message in part)
