"""All that a step sends to other clients and gathers from them, as tensors.

A step knows rows, columns and gradients; frames, bounds, masks and precision are dealt with here.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from laser_vfl.client.peers.frame_buffer import Key, Kind, OutgoingFrame
from laser_vfl.client.session.member_view import MemberView
from laser_vfl.client.session.progress import Progress
from laser_vfl.core.errors import ContractError, TrainingStopped
from laser_vfl.core.preparation import ExchangeStep
from laser_vfl.core.privacy.bounds import Bounds
from laser_vfl.core.privacy.masking import dequantised, mask_for, quantised
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.randomness import RandomStream
from laser_vfl.core.schedule.step_plan import Plan, Share
from laser_vfl.core.training.gradients import (
    WIRE_DTYPES,
    columns_at,
    columns_spread,
    received,
    rows_at,
    spread,
    sum_in_order,
)
from laser_vfl.core.training.learner import Learner
from laser_vfl.core.training.row_rounding import LEVELS, RowRounding
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor, serialised_frame
from laser_vfl.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

_REPRESENTATION_KINDS: dict[Phase, Kind] = {
    Phase.TRAINING: pb.FRAME_KIND_REPRESENTATION,
    Phase.EVALUATION: pb.FRAME_KIND_EVALUATION,
}
_EXCHANGE_KINDS: dict[str, Kind] = {
    "representation": pb.FRAME_KIND_REPRESENTATION,
    "gradient": pb.FRAME_KIND_GRADIENT,
}
_ROUNDING: dict[int, RandomStream] = {
    pb.FRAME_KIND_REPRESENTATION: RandomStream.ROUNDED_REPRESENTATIONS,
    pb.FRAME_KIND_GRADIENT: RandomStream.ROUNDED_GRADIENTS,
    pb.FRAME_KIND_EVALUATION: RandomStream.ROUNDED_EVALUATION,
}
_NAMES: dict[int, str] = {
    pb.FRAME_KIND_REPRESENTATION: "the representation",
    pb.FRAME_KIND_GRADIENT: "the gradient",
    pb.FRAME_KIND_EVALUATION: "the evaluated representation",
}


class UnfitNumbers(ContractError):
    """A peer sent a tensor of the right shape, with numbers that nobody may use."""


class StepTransport(Protocol):
    """What steps exchange with other clients. Only the training thread uses it.

    What is sent leaves with `flush`, or when something is gathered that is not here: what one step
    and another have for the same peer at the same time travels together.
    """

    def send_representations(self, plan: Plan, rows_bd: torch.Tensor, phase: Phase) -> None:
        """Send each peer with a head the rows, and the columns, that concern it."""

    def gather_representations(self, plan: Plan, stack_bpd: torch.Tensor, phase: Phase) -> None:
        """Wait for the representations of all peers and put them into their columns of `p`."""

    def send_gradients(self, plan: Plan, gradient_bpd: torch.Tensor) -> None:
        """Send each peer the gradient of its representation, masked if the run masks them."""

    def gather_gradients(self, plan: Plan, own_bd: torch.Tensor | None, width: int) -> torch.Tensor:
        """Wait for the gradients of all peers with a head; return their sum and the own one's."""

    def send_rows(
        self, step: int, exchange: ExchangeStep, rows_rd: torch.Tensor, peers: Sequence[int]
    ) -> None:
        """Send these peers rows of an exchange before training."""

    def gather_rows(
        self, step: int, exchange: ExchangeStep, peers: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """Wait for the rows of these peers in an exchange before training."""

    def acknowledge(self, step: int, peers: Sequence[int]) -> None:
        """Tell peers that what they have sent in this step has come."""

    def wait_for_acknowledgements(self, step: int, peers: Sequence[int]) -> None:
        """Wait until these peers have what was sent to them in this step."""

    def flush(self) -> None:
        """Have all leave that was sent; returns at once."""

    def has_representations(self, plan: Plan) -> bool:
        """Tell whether the representations of all peers in a training step are here."""

    def has_gradients(self, plan: Plan) -> bool:
        """Tell whether the gradients of all peers in a training step are here."""

    def wait(self, *, gradients: Plan | None, representations: Plan | None) -> None:
        """Wait until these gradients of one step, or these representations of another, are here."""

    def key_of(self, peer: int) -> bytes:
        """Return the key shared with a peer, from which something has come already."""

    def as_received(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as its receivers see it, in the precision of the wire."""

    def check(self) -> None:
        """Raise if the step has to end; a client that waits for nobody would not notice."""


class FrameMesh(Protocol):
    """What carries frames: the streams to all peers, or something that stands in for them."""

    def send(self, frames: Sequence[OutgoingFrame]) -> None:
        """Send serialised frames to their peers; returns at once."""

    def holds(self, keys: Iterable[Key]) -> bool:
        """Tell whether all of these frames are here."""

    def wait(self, sets: Sequence[Collection[Key]]) -> None:
        """Wait until all frames of one of these sets are here; that of the oldest step is first."""

    def take(self, wanted: Mapping[Key, TensorSpec | None]) -> Mapping[Key, pb.Frame]:
        """Wait for all of these frames, which should hold such tensors, and return them."""

    def refuse(self, peer: int, reason: str) -> None:
        """Have no stream to a peer that broke the contract for as long as the generation lasts."""

    def key_of(self, peer: int) -> bytes:
        """Return the key shared with a peer, from which something has come already."""

    def check(self) -> None:
        """Raise if nothing more will come."""


@dataclass(frozen=True)
class ExchangeFormat:
    """What tensors look like between the clients of one run."""

    width: int
    dtype: torch.dtype
    max_norm: float
    masks_gradients: bool = False
    seed: int = 0
    """What rounding at random is keyed by."""
    columns: Callable[[int], torch.Tensor | None] = lambda peer: None
    """Which columns of this client's representation concern a peer; None means all."""

    @classmethod
    def of(cls, learner: Learner) -> "ExchangeFormat":
        """Return the format of a run that this learner is trained in."""
        settings = learner.context.settings
        return cls(
            learner.exchanged_width,
            WIRE_DTYPES[settings.wire_precision],
            settings.max_norm,
            settings.masked_gradients,
            settings.seed,
            learner.columns,
        )

    def thresholds(self, plan: Plan, kind: Kind, num_rows: int, width: int) -> torch.Tensor | None:
        """Return what decides how a client's rows of a step are rounded; None if they are not."""
        if self.dtype not in LEVELS:
            return None
        rounding = RowRounding(self.seed, plan.step)
        return rounding.thresholds(plan.client, _ROUNDING[kind], num_rows, width)


class PeerTransport:
    """The transport of steps under one view, over the streams to its members."""

    def __init__(
        self, mesh: FrameMesh, view: MemberView, form: ExchangeFormat, progress: Progress
    ) -> None:
        self._mesh = mesh
        self._view = view
        self._form = form
        self._progress = progress
        self._names = {peer.index: peer.name for peer in view.peers}
        self._bounds = Bounds(form.max_norm, form.dtype)
        self._outgoing: list[OutgoingFrame] = []

    def send_representations(self, plan: Plan, rows_bd: torch.Tensor, phase: Phase) -> None:
        """Send each peer with a head the rows, and the columns, that concern it."""
        kind = _REPRESENTATION_KINDS[phase]
        thresholds_bd = self._form.thresholds(plan, kind, *rows_bd.shape)
        whole: bytes | None = None
        for share in plan.head_peers:
            if share.positions is not None or self._form.columns(share.peer) is not None:
                frame = self._part(kind, plan, share, rows_bd, thresholds_bd)
            else:  # the same for all of these
                frame = whole = whole or self._frame(kind, plan.step, rows_bd, thresholds_bd)
            self._outgoing.append((share.peer, kind, frame))

    def gather_representations(self, plan: Plan, stack_bpd: torch.Tensor, phase: Phase) -> None:
        """Wait for the representations of all peers and put them into their columns of `p`.

        A tensor of another shape, or with numbers out of bounds, is refused. Its sender counts as
        out of reach then, and is waited for until members change.
        """
        kind, width = _REPRESENTATION_KINDS[phase], stack_bpd.shape[2]
        gathered = self._gather(kind, plan.step, plan.shares, self._form.dtype)
        for share in plan.shares:
            column = plan.blocks.index(share.peer)
            rows_rd = columns_spread(gathered[share.peer], self._form.columns(share.peer), width)
            if share.positions is None:
                stack_bpd[:, column] = rows_rd
            else:
                stack_bpd[torch.from_numpy(share.positions), column] = rows_rd

    def send_gradients(self, plan: Plan, gradient_bpd: torch.Tensor) -> None:
        """Send each peer the gradient of its representation, masked if the run masks them."""
        kind = pb.FRAME_KIND_GRADIENT
        gradient_pbd = gradient_bpd.transpose(0, 1).contiguous()  # each peer's lies together
        thresholds_bd = self._form.thresholds(plan, kind, *gradient_pbd[0].shape)
        for share in plan.shares:
            gradient_bd = gradient_pbd[plan.blocks.index(share.peer)]
            if self._form.masks_gradients:
                frame = self._masked_frame(plan, share, gradient_bd)
            else:
                frame = self._part(kind, plan, share, gradient_bd, thresholds_bd)
            self._outgoing.append((share.peer, kind, frame))

    def gather_gradients(self, plan: Plan, own_bd: torch.Tensor | None, width: int) -> torch.Tensor:
        """Wait for the gradients of all peers with a head; return their sum and the own one's."""
        if self._form.masks_gradients:
            parts = [] if own_bd is None else [own_bd]
            if plan.head_peers:
                parts.append(self._gather_masked(plan, width))
            return sum_in_order(parts)
        gathered = self._gather(
            pb.FRAME_KIND_GRADIENT, plan.step, plan.head_peers, self._form.dtype
        )
        gradients = {} if own_bd is None else {plan.client: own_bd}
        for share in plan.head_peers:
            rows_rd = columns_spread(gathered[share.peer], self._form.columns(share.peer), width)
            gradients[share.peer] = spread(rows_rd, share.positions, len(plan.rows))
        return sum_in_order(gradients[client] for client in sorted(gradients))

    def send_rows(
        self, step: int, exchange: ExchangeStep, rows_rd: torch.Tensor, peers: Sequence[int]
    ) -> None:
        """Send these peers rows of an exchange before training."""
        kind = _EXCHANGE_KINDS[exchange.kind]
        frame = self._frame(kind, step, rows_rd)
        self._outgoing += [(peer, kind, frame) for peer in peers]

    def gather_rows(
        self, step: int, exchange: ExchangeStep, peers: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """Wait for the rows of these peers in an exchange before training."""
        shares = [Share(peer, None, exchange.num_rows) for peer in peers]
        return self._gather(_EXCHANGE_KINDS[exchange.kind], step, shares, self._form.dtype)

    def acknowledge(self, step: int, peers: Sequence[int]) -> None:
        """Tell peers that what they have sent in this step has come."""
        kind = pb.FRAME_KIND_EVALUATED
        frame = tagged(self._view, kind, step).SerializeToString()
        self._outgoing += [(peer, kind, frame) for peer in peers]

    def wait_for_acknowledgements(self, step: int, peers: Sequence[int]) -> None:
        """Wait until these peers have what was sent to them in this step."""
        self._take({(peer, pb.FRAME_KIND_EVALUATED, step): None for peer in peers})

    def flush(self) -> None:
        """Have all leave that was sent; returns at once."""
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._mesh.send(outgoing)

    def has_representations(self, plan: Plan) -> bool:
        """Tell whether the representations of all peers in a training step are here."""
        return self._mesh.holds(_representations_of(plan))

    def has_gradients(self, plan: Plan) -> bool:
        """Tell whether the gradients of all peers in a training step are here."""
        return self._mesh.holds(_gradients_of(plan))

    def wait(self, *, gradients: Plan | None, representations: Plan | None) -> None:
        """Wait until these gradients of one step, or these representations of another, are here.

        The coordinator hears for whom the older of the two steps waits.
        """
        sets = [_gradients_of(gradients)] if gradients else []
        sets += [_representations_of(representations)] if representations else []
        kind = pb.FRAME_KIND_GRADIENT if gradients else pb.FRAME_KIND_REPRESENTATION
        with self._progress.waiting(kind):
            self._mesh.wait(sets)

    def key_of(self, peer: int) -> bytes:
        """Return the key shared with a peer, from which something has come already."""
        return self._mesh.key_of(peer)

    def as_received(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as its receivers see it, in the precision of the wire."""
        return received(tensor, self._form.dtype)

    def check(self) -> None:
        """Raise if the step has to end; a client that waits for nobody would not notice."""
        self._mesh.check()

    def _part(
        self,
        kind: Kind,
        plan: Plan,
        share: Share,
        tensor_bd: torch.Tensor,
        thresholds_bd: torch.Tensor | None,
    ) -> bytes:
        """Return a frame with the rows and columns that concern a peer."""

        def of_peer(whole_bd: torch.Tensor) -> torch.Tensor:
            return rows_at(columns_at(whole_bd, self._form.columns(share.peer)), share.positions)

        thresholds_rc = None if thresholds_bd is None else of_peer(thresholds_bd)
        return self._frame(kind, plan.step, of_peer(tensor_bd), thresholds_rc)

    def _masked_frame(self, plan: Plan, share: Share, gradient_bd: torch.Tensor) -> bytes:
        """Mask a gradient, so that its receiver learns no more than the sum over all heads.

        Whoever masks with us holds a row of this step too, so its representation has come, and
        before it, on the same stream, its key.
        """
        kind, width = pb.FRAME_KIND_GRADIENT, gradient_bd.shape[1]
        generation = self._view.generation
        mask_rd = mask_for(plan, share, self.key_of, generation=generation, width=width)
        gradient_rd = rows_at(gradient_bd, share.positions)
        self._check_own(kind, plan.step, gradient_rd)
        masked_rd = quantised(gradient_rd).add_(torch.from_numpy(mask_rd))
        return serialised_frame(tagged(self._view, kind, plan.step), masked_rd, torch.int64)

    def _gather_masked(self, plan: Plan, width: int) -> torch.Tensor:
        """Wait for the masked gradients of all peers with a head and return their sum.

        Only the sum can be looked at. One that is out of bounds may be any of these peers' fault,
        and so it ends the training of this client.
        """
        kind, shares = pb.FRAME_KIND_GRADIENT, plan.head_peers
        total_bd = torch.zeros((len(plan.rows), width), dtype=torch.int64)
        gathered = self._gather(kind, plan.step, shares, torch.int64)
        for share in shares:
            if share.positions is None:
                total_bd += gathered[share.peer]
            else:
                total_bd[torch.from_numpy(share.positions)] += gathered[share.peer]
        sum_bd = dequantised(total_bd)
        bounds = Bounds(len(shares) * self._form.max_norm, torch.float32)
        if bounds.unfit_to_use(sum_bd.numpy()) is not None:
            raise TrainingStopped(
                f"the masked gradients of step {plan.step} add up to more than "
                f"{bounds.max_norm:g}, and masks hide whose it is",
                hint="one of the other clients does not keep to the method",
            )
        return sum_bd

    def _gather(
        self, kind: Kind, step: int, shares: Sequence[Share], dtype: torch.dtype
    ) -> dict[int, torch.Tensor]:
        """Wait for a tensor of each peer; refuse what is not of the shape, type or size agreed."""
        wanted: dict[Key, TensorSpec | None] = {}
        specs: dict[int, TensorSpec] = {}
        for share in shares:
            specs[share.peer] = TensorSpec((share.num_rows, self._form.width), dtype)
            wanted[share.peer, kind, step] = specs[share.peer]
        frames = self._take(wanted)
        gathered: dict[int, torch.Tensor] = {}
        refused: dict[Key, TensorSpec | None] = {}
        for peer, spec in specs.items():
            key = (peer, kind, step)
            try:
                tensor = decode_tensor(frames[key].tensor, spec)
                gathered[peer] = tensor if dtype is torch.int64 else self._usable(tensor)
            except ContractError as error:
                self._refuse(peer, step, error)
                refused[key] = spec
        self._take(refused)  # they do not come a second time: this ends with the generation
        return gathered

    def _refuse(self, peer: int, step: int, error: ContractError) -> None:
        log.error(
            "%s broke the contract at step %d: %s; its stream stays closed until members change",
            self._names[peer],
            step,
            error,
        )
        reason = "unfit numbers" if isinstance(error, UnfitNumbers) else "misshapen"
        self._mesh.refuse(peer, reason)

    def _take(self, wanted: Mapping[Key, TensorSpec | None]) -> Mapping[Key, pb.Frame]:
        """Wait for frames, however long it takes: the coordinator tells a slow peer from a lost."""
        if not wanted:
            return {}
        if self._mesh.holds(wanted):
            return self._mesh.take(wanted)
        self.flush()
        _, kind, _ = next(iter(wanted))
        with self._progress.waiting(kind):
            return self._mesh.take(wanted)

    def _frame(
        self,
        kind: Kind,
        step: int,
        rows_rd: torch.Tensor,
        thresholds_rd: torch.Tensor | None = None,
    ) -> bytes:
        self._check_own(kind, step, rows_rd)
        frame = tagged(self._view, kind, step)
        return serialised_frame(frame, rows_rd, self._form.dtype, thresholds_rd)

    def _check_own(self, kind: Kind, step: int, rows_rd: torch.Tensor) -> None:
        if self._bounds.unfit_to_send(rows_rd.numpy()) is not None:
            raise diverged(f"{_NAMES[kind]} of step {step} is not what may be sent: {self._bounds}")

    def _usable(self, rows_rd: torch.Tensor) -> torch.Tensor:
        unfit = self._bounds.unfit_to_use(rows_rd.numpy())
        if unfit is not None:
            raise UnfitNumbers(
                f"expected {self._bounds}, and {unfit.sum()} of {len(unfit)} rows are not"
            )
        return rows_rd


class LocalTransport:
    """The transport of a client that does a step alone: nothing is sent, and nothing comes."""

    def send_representations(self, plan: Plan, rows_bd: torch.Tensor, phase: Phase) -> None:
        """Send nothing."""

    def gather_representations(self, plan: Plan, stack_bpd: torch.Tensor, phase: Phase) -> None:
        """Leave the stack as it is, with the own representation in it."""

    def send_gradients(self, plan: Plan, gradient_bpd: torch.Tensor) -> None:
        """Send nothing."""

    def gather_gradients(self, plan: Plan, own_bd: torch.Tensor | None, width: int) -> torch.Tensor:
        """Return the own gradient; alone, only a client with a head learns."""
        return sum_in_order([] if own_bd is None else [own_bd])

    def send_rows(
        self, step: int, exchange: ExchangeStep, rows_rd: torch.Tensor, peers: Sequence[int]
    ) -> None:
        """Send nothing."""

    def gather_rows(
        self, step: int, exchange: ExchangeStep, peers: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """Return nothing."""
        return {}

    def acknowledge(self, step: int, peers: Sequence[int]) -> None:
        """Tell nobody."""

    def wait_for_acknowledgements(self, step: int, peers: Sequence[int]) -> None:
        """Wait for nobody."""

    def flush(self) -> None:
        """Send nothing."""

    def has_representations(self, plan: Plan) -> bool:
        """Say yes: there are none to wait for."""
        return True

    def has_gradients(self, plan: Plan) -> bool:
        """Say yes: there are none to wait for."""
        return True

    def wait(self, *, gradients: Plan | None, representations: Plan | None) -> None:
        """Wait for nobody."""

    def key_of(self, peer: int) -> bytes:
        """Raise: there is nobody to share a key with."""
        raise LookupError(f"this step is done alone, without client {peer}")

    def as_received(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as it is."""
        return tensor

    def check(self) -> None:
        """Go on: nobody can end it."""


def _representations_of(plan: Plan) -> list[Key]:
    return [(share.peer, pb.FRAME_KIND_REPRESENTATION, plan.step) for share in plan.shares]


def _gradients_of(plan: Plan) -> list[Key]:
    return [(share.peer, pb.FRAME_KIND_GRADIENT, plan.step) for share in plan.head_peers]


def diverged(what: str) -> TrainingStopped:
    """Return the error of a client whose own training does not converge."""
    return TrainingStopped(
        what,
        hint="lower optimizer.lr here or at the other clients, and look at the features' scale",
    )


def tagged(view: MemberView, kind: Kind, step: int) -> pb.Frame:
    """Return a frame with everything but a tensor."""
    return pb.Frame(
        run=view.run,
        generation=view.generation,
        step=step,
        kind=kind,
        sender=view.me.name,
        incarnation=view.me.incarnation,
    )
