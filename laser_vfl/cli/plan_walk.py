"""The steps of a run as rounds of frames, from the same schedule and plans that clients follow."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from laser_vfl.cli.plan_clocks import Message, Round
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.joint_svd import Chunk
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan, Share, plan_step
from laser_vfl.core.schedule import Step
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.timeline import Moment
from laser_vfl.methods import method_named
from laser_vfl.wire.overhead import (
    FrameName,
    frame_message_bytes,
    link_bytes,
    tcp_bytes,
    tensor_bytes,
)

FORWARD, HEAD, BACKWARD = 0.35, 0.3, 0.35
"""How a step's computing is divided, roughly; it only matters who waits for whom meanwhile."""


class Walk:
    """Says of each step of a run who computes and who sends what to whom."""

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
        self.heads = self._method.heads(labelled)
        self._places = [
            Place(client=k, num_clients=len(roster), heads=self.heads, settings=settings)
            for k in range(len(roster))
        ]

    def moment(
        self, moment: Moment, number: int, alignments: Sequence[ClientAlignment]
    ) -> list[Round]:
        """Return the rounds of a step of a run."""
        if moment.chunk is not None:
            return list(self._chunk(moment.chunk, number))
        assert moment.step is not None
        plans = self.plans(moment.step, alignments)
        if moment.stage == "distillation":
            return [Round({plan.client: 1.0 for plan in plans})]
        return self._training(plans)

    def plans(
        self, step: Step, alignments: Sequence[ClientAlignment], *, predicts: bool = False
    ) -> list[Plan]:
        """Return what each client that has anything to do does in a step."""
        method = self._method
        uses = method.predicts_from if predicts else method.learns_from
        plans = (
            plan_step(
                step,
                alignments[place.client],
                client=place.client,
                participants=self._everyone,
                heads=self.heads,
                uses=partial(uses, place=place),
            )
            for place in self._places
        )
        return [plan for plan in plans if plan is not None and plan.learns]

    def evaluation(self, step: Step, alignments: Sequence[ClientAlignment]) -> list[Round]:
        """Return the rounds of a batch of test rows."""
        plans = self.plans(step, alignments, predicts=True)
        sent = [self._rows("evaluation", plan, plan.teachers) for plan in plans]
        thanks = [
            self._bare(plan.client, share.peer, plan.step)
            for plan in plans
            if plan.has_head
            for share in plan.shares
            if not has(self.heads, share.peer)
        ]
        return [
            Round({plan.client: FORWARD for plan in plans}, _flat(sent)),
            Round({plan.client: 0.0 for plan in plans}, tuple(thanks)),
        ]

    def _training(self, plans: Sequence[Plan]) -> list[Round]:
        forward = [self._rows("representation", plan, plan.teachers) for plan in plans]
        back = [self._rows("gradient", plan, plan.shares) for plan in plans if plan.has_head]
        return [
            Round({plan.client: FORWARD for plan in plans}, _flat(forward)),
            Round({plan.client: HEAD for plan in plans if plan.has_head}, _flat(back)),
            Round({plan.client: BACKWARD for plan in plans}),
        ]

    def _chunk(self, chunk: Chunk, number: int) -> Iterator[Round]:
        """Yield the rounds of a chunk: the parties meet, show their rows, and hear of it."""
        bare = partial(self._bare, step=number)
        parties, computer = chunk.parties, chunk.computer
        others = [party for party in parties if party != computer]
        if chunk.upward:
            first, second = parties
            yield Round({first: 0.0, second: 0.0}, (bare(first, second), bare(second, first)))
            shown = [self._chunk_rows("representation", k, computer, chunk, number) for k in others]
            yield Round(dict.fromkeys(parties, 1.0), tuple(shown))
            if computer not in parties:
                yield Round({computer: 0.0}, tuple(bare(computer, k) for k in parties))
            return
        turned = [self._chunk_rows("gradient", computer, k, chunk, number) for k in others]
        yield Round({computer: 1.0}, tuple(turned))
        yield Round(dict.fromkeys(others, 0.0), tuple(bare(k, computer) for k in others))

    def _chunk_rows(
        self, kind: FrameName, sender: int, receiver: int, chunk: Chunk, step: int
    ) -> Message:
        rows, width = chunk.stop - chunk.start, self._settings.representation_dim
        return self._message(kind, sender, receiver, step, rows, width)

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

    def _bare(self, sender: int, receiver: int, step: int) -> Message:
        """Return a frame without a tensor, which says that something has come."""
        size = frame_message_bytes("evaluated", sender=self._roster[sender], step=step)
        return self._sent(sender, receiver, 0, size)

    def _sent(self, sender: int, receiver: int, payload: int, size: int) -> Message:
        over_tcp = tcp_bytes(size, tls=self._tls)
        return Message(sender, receiver, payload, over_tcp, link_bytes(over_tcp))


def alignments_of(groups: Sequence[Group], num_clients: int) -> list[ClientAlignment]:
    """Return what clients would be told, with rows in the order of the groups."""
    places = [np.arange(group.size) for group in groups]
    return [
        ClientAlignment(
            tuple(groups),
            {g: places[g] for g, group in enumerate(groups) if has(group.observed, client)},
        )
        for client in range(num_clients)
    ]


def labelled_mask(names: Sequence[str], roster: Sequence[str]) -> int:
    """Return who has labels as a mask."""
    return mask_of(roster.index(name) for name in names)


def _flat(parts: Sequence[Sequence[Message]]) -> tuple[Message, ...]:
    return tuple(message for part in parts for message in part)
