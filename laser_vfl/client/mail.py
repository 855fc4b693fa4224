"""How the training thread sends and receives: tensors out at once, in as a complete set."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.inbox import Key, Kind
from laser_vfl.client.links import Links, tagged
from laser_vfl.client.progress import Progress
from laser_vfl.client.view import MemberView
from laser_vfl.core.bounds import Bounds
from laser_vfl.core.errors import ContractError, TrainingStopped
from laser_vfl.core.exchange import rows_at
from laser_vfl.core.masking import dequantised, mask_for, quantised
from laser_vfl.core.plan import Plan, Share
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor

log = logging.getLogger(__name__)

_NAMES: dict[int, str] = {
    pb.FRAME_KIND_REPRESENTATION: "the representation",
    pb.FRAME_KIND_GRADIENT: "the gradient",
    pb.FRAME_KIND_EVALUATION: "the evaluated representation",
}


class UnfitNumbers(ContractError):
    """A peer sent a tensor of the right shape, with numbers that nobody may use."""


class Mail:
    """Sends and receives under one view. Used by one thread; the event loop is another's."""

    def __init__(
        self,
        links: Links,
        view: MemberView,
        progress: Progress,
        wire_dtype: torch.dtype,
        max_norm: float,
    ) -> None:
        self._links = links
        self._view = view
        self._progress = progress
        self._peers = {peer.index: peer for peer in view.peers}
        self._wire_dtype = wire_dtype
        self._bounds = Bounds(max_norm, wire_dtype)
        self._loop = asyncio.get_running_loop()

    def send_rows(
        self, kind: Kind, step: int, tensor_bd: torch.Tensor, shares: Sequence[Share]
    ) -> None:
        """Push to each peer the rows that it holds too; those that hold all get one frame."""
        if not shares:
            return
        frames: list[tuple[int, bytes]] = []
        whole: bytes | None = None
        for share in shares:
            if share.positions is not None:
                frames.append((share.peer, self._frame(kind, step, tensor_bd, share.positions)))
                continue
            whole = whole or self._frame(kind, step, tensor_bd, None)
            frames.append((share.peer, whole))
        self._loop.call_soon_threadsafe(self._links.send, kind, frames)

    def send_each(
        self,
        kind: Kind,
        step: int,
        parts: Mapping[int, torch.Tensor],
        shares: Sequence[Share],
    ) -> None:
        """Push to each peer the rows that it holds too, of its own part."""
        frames = [
            (share.peer, self._frame(kind, step, parts[share.peer], share.positions))
            for share in shares
        ]
        self._loop.call_soon_threadsafe(self._links.send, kind, frames)

    def send_masked(
        self, plan: Plan, gradient_bpd: torch.Tensor, columns: Mapping[int, int]
    ) -> None:
        """Push to each peer its gradient, masked so that it learns no more than the heads' sum.

        Whoever masks with us holds a row of this step too, so its representation has come, and
        with it, before it, its key.
        """
        kind = pb.FRAME_KIND_GRADIENT
        frames = []
        for share in plan.shares:
            mask_rd = mask_for(
                plan,
                share,
                self.key_of,
                generation=self._view.generation,
                width=gradient_bpd.shape[2],
            )
            gradient_rd = rows_at(gradient_bpd[:, columns[share.peer]], share.positions)
            self._check_own(kind, plan.step, gradient_rd)
            frame = tagged(self._view, kind, plan.step)
            masked_rd = quantised(gradient_rd).add_(torch.from_numpy(mask_rd))
            encode_tensor(masked_rd, torch.int64, frame.tensor)
            frames.append((share.peer, frame.SerializeToString()))
        self._loop.call_soon_threadsafe(self._links.send, kind, frames)

    def receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int
    ) -> dict[int, torch.Tensor]:
        """Wait for a tensor of each peer; all but numbers within bounds and of a shape is refused.

        Who sends something else counts as out of reach, and is waited for until members change.
        """
        return self._receive(kind, step, shares, width, self._wire_dtype)

    def receive_sum(
        self, kind: Kind, step: int, shares: Sequence[Share], num_rows: int, width: int
    ) -> torch.Tensor:
        """Wait for a masked tensor of each peer and return their sum, (num_rows, width).

        Only the sum can be looked at. One that is out of bounds may be any of these peers' fault,
        and so it ends the training of this client.
        """
        total_bd = torch.zeros((num_rows, width), dtype=torch.int64)
        received = self._receive(kind, step, shares, width, torch.int64)
        for share in shares:
            if share.positions is None:
                total_bd += received[share.peer]
            else:
                total_bd[torch.from_numpy(share.positions)] += received[share.peer]
        sum_bd = dequantised(total_bd)
        bounds = Bounds(len(shares) * self._bounds.max_norm, torch.float32)
        if bounds.unfit_to_use(sum_bd.numpy()) is not None:
            raise TrainingStopped(
                f"the masked gradients of step {step} add up to more than {bounds.max_norm:g}, "
                "and masks hide whose it is",
                hint="one of the other clients does not keep to the method",
            )
        return sum_bd

    def _receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int, dtype: torch.dtype
    ) -> dict[int, torch.Tensor]:
        keys = [(share.peer, kind, step) for share in shares]
        frames = self._take(keys)
        received: dict[int, torch.Tensor] = {}
        refused: list[Key] = []
        for share, key in zip(shares, keys, strict=True):
            spec = TensorSpec((share.num_rows, width), dtype)
            try:
                tensor = decode_tensor(frames[key].tensor, spec)
                received[share.peer] = self._usable(tensor) if dtype.is_floating_point else tensor
            except ContractError as error:
                is_unfit = isinstance(error, UnfitNumbers)
                self._refuse(share.peer, step, error, "unfit numbers" if is_unfit else "misshapen")
                refused.append(key)
        self._take(refused)  # they do not come a second time: this ends with the generation
        return received

    def _refuse(self, peer: int, step: int, error: ContractError, reason: str) -> None:
        log.error(
            "%s broke the contract at step %d: %s; its stream stays closed until members change",
            self._peers[peer].name,
            step,
            error,
        )
        self._loop.call_soon_threadsafe(self._links.refuse, peer, reason)

    def acknowledge(self, step: int, peers: Sequence[int]) -> None:
        """Tell these that their representations of an evaluation have come."""
        kind = pb.FRAME_KIND_EVALUATED
        frame = tagged(self._view, kind, step).SerializeToString()
        frames = [(peer, frame) for peer in peers]
        self._loop.call_soon_threadsafe(self._links.send, kind, frames)

    def wait_for_acknowledgements(self, step: int, peers: Sequence[int]) -> None:
        """Wait until these have our representations of an evaluation."""
        self._take([(peer, pb.FRAME_KIND_EVALUATED, step) for peer in peers])

    def key_of(self, peer: int) -> bytes:
        """Return the key shared with a peer, from which something has come already."""
        assert self._links.keys is not None
        return self._links.keys.key_of(self._peers[peer])

    def as_received(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as those see it whom it was sent to."""
        return tensor.to(self._wire_dtype).to(tensor.dtype)

    def check(self) -> None:
        """Raise if what is under way has to end; who waits for nobody would not notice."""
        if self._links.inbox.failure is not None:
            raise self._links.inbox.failure

    def _take(self, keys: Sequence[Key]) -> dict[Key, pb.Frame]:
        """Wait for frames, however long it takes: the coordinator tells a slow peer from a lost."""
        kind = keys[0][1] if keys else pb.FRAME_KIND_UNSPECIFIED
        self._progress.is_waiting = True
        try:
            with self._progress.meters.waiting(kind):
                return self._links.inbox.take(keys)
        finally:
            self._progress.is_waiting = False

    def _frame(
        self,
        kind: Kind,
        step: int,
        tensor_bd: torch.Tensor,
        positions: npt.NDArray[np.int64] | None,
    ) -> bytes:
        frame = tagged(self._view, kind, step)
        rows_rd = rows_at(tensor_bd, positions)
        self._check_own(kind, step, rows_rd)
        encode_tensor(rows_rd, self._wire_dtype, frame.tensor)
        return frame.SerializeToString()

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


def diverged(what: str) -> TrainingStopped:
    """Return the error of a client whose own training does not converge."""
    return TrainingStopped(
        what,
        hint="lower optimizer.lr here or at the other clients, and look at the features' scale",
    )


class NoMail:
    """The mail of somebody who does a step alone."""

    def send_rows(
        self, kind: Kind, step: int, tensor_bd: torch.Tensor, shares: Sequence[Share]
    ) -> None:
        """There is nobody to send to."""

    def receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int
    ) -> dict[int, torch.Tensor]:
        """Nothing comes."""
        return {}

    def acknowledge(self, step: int, peers: Sequence[int]) -> None:
        """Nothing has come."""

    def wait_for_acknowledgements(self, step: int, peers: Sequence[int]) -> None:
        """Nobody has to say anything."""
