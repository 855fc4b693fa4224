"""How the training thread sends and receives: tensors out at once, in as a complete set."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.inbox import Key, Kind
from laser_vfl.client.links import Links, lost, tagged
from laser_vfl.client.session import Session
from laser_vfl.client.view import MemberView
from laser_vfl.core.errors import ContractError
from laser_vfl.core.exchange import rows_at
from laser_vfl.core.plan import Share
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor


class Mail:
    """Sends and receives under one view. Used by one thread; the event loop is another's."""

    def __init__(
        self,
        links: Links,
        view: MemberView,
        session: Session,
        wire_dtype: torch.dtype,
        timeout_s: float,
    ) -> None:
        self._links = links
        self._view = view
        self._session = session
        self._peers = {peer.index: peer for peer in view.peers}
        self._wire_dtype = wire_dtype
        self._timeout_s = timeout_s
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
        self._loop.call_soon_threadsafe(self._links.send, frames)

    def send_columns(
        self,
        kind: Kind,
        step: int,
        tensor_bpd: torch.Tensor,
        columns: Mapping[int, int],
        shares: Sequence[Share],
    ) -> None:
        """Push to each peer the rows that it holds too, of its own column."""
        frames = [
            (
                share.peer,
                self._frame(kind, step, tensor_bpd[:, columns[share.peer]], share.positions),
            )
            for share in shares
        ]
        self._loop.call_soon_threadsafe(self._links.send, frames)

    def receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int
    ) -> dict[int, torch.Tensor]:
        """Wait for a tensor of each peer; anything but the expected shape is refused."""
        keys = [(share.peer, kind, step) for share in shares]
        frames = self._take(keys)
        received = {}
        for share, key in zip(shares, keys, strict=True):
            spec = TensorSpec((share.num_rows, width), self._wire_dtype)
            try:
                received[share.peer] = decode_tensor(frames[key].tensor, spec)
            except ContractError as error:
                name = self._peers[share.peer].name
                raise ContractError(f"{name} broke the contract at step {step}: {error}") from None
        return received

    def drain(self) -> None:
        """Wait while too much is unsent."""
        asyncio.run_coroutine_threadsafe(self._links.drain(), self._loop).result()
        self.check()

    def advance(self) -> None:
        """Take note that this client is one step further."""
        self._session.next_step += 1

    def check(self) -> None:
        """Raise if the run has ended; who waits for nobody would not notice otherwise."""
        if self._links.inbox.failure is not None:
            raise self._links.inbox.failure

    def _take(self, keys: Sequence[Key]) -> dict[Key, pb.Frame]:
        """Wait for frames, however long the coordinator says that all is well.

        A peer may be busy for long with samples that are not ours. Only without a coordinator,
        who would tell a slow peer from a stuck one, is the time limited.
        """
        frames: dict[Key, pb.Frame] = {}
        self._session.waiting = True
        while missing := [key for key in keys if key not in frames]:
            frames |= self._links.inbox.take(missing, self._timeout_s)
            late = next((key for key in keys if key not in frames), None)
            if late is not None and not self._session.in_touch:
                peer, kind, step = late
                name = pb.FrameKind.Name(kind).removeprefix("FRAME_KIND_").lower()
                raise lost(
                    self._peers[peer],
                    f"its {name} of step {step} did not come within {self._timeout_s:g} s",
                )
        self._session.waiting = False
        return frames

    def _frame(
        self,
        kind: Kind,
        step: int,
        tensor_bd: torch.Tensor,
        positions: npt.NDArray[np.int64] | None,
    ) -> bytes:
        frame = tagged(self._view, kind, step)
        encode_tensor(rows_at(tensor_bd, positions), self._wire_dtype, frame.tensor)
        return frame.SerializeToString()
