"""What a client keeps of a joint SVD while it is computed, and while its components are learnt."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.preparation import ExchangeStep, KeyOf, PreparationState
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import flat_rows
from laser_vfl.methods.vfedtrans.joint_svd import (
    Chunk,
    Matrix,
    directions,
    joint_directions,
    masked,
    num_shared_by,
    shared_rows,
    unmasked,
    with_fixed_signs,
)

KEY_BYTES = 32


class JointComponents(PreparationState):
    """The masked matrices that a client gathers, the keys of its pairs, and their components."""

    def __init__(
        self,
        context: FederationContext,
        alignment: ClientAlignment,
        form: TableForm | None = None,
    ) -> None:
        super().__init__()
        self._form = form
        me, width, groups = context.client, context.settings.representation_dim, alignment.groups
        self._width = width
        self._directions: Matrix | None = None
        self._joint: dict[tuple[int, int], Matrix] = {}
        peers = [k for k in range(context.num_clients) if k != me]
        self._rows = {k: torch.from_numpy(shared_rows(alignment, k)) for k in peers}
        sizes = {k: len(rows) for k, rows in self._rows.items()}
        self.components = _fixed({str(k): torch.zeros(n, width) for k, n in sizes.items()})
        self.keys = _fixed({str(k): torch.zeros(KEY_BYTES, dtype=torch.uint8) for k in peers})
        pairs = _computed_by(me, context.num_clients)
        self.masked = _fixed(
            {f"{j}-{k}": torch.zeros(num_shared_by(groups, j, k), 2 * width) for j, k in pairs}
        )
        self._places: dict[int, torch.Tensor] = {}

    def outgoing(
        self, exchange: ExchangeStep, inputs: torch.Tensor, key_of: KeyOf, own_key: bytes
    ) -> torch.Tensor:
        """Show the own rows of a chunk, or return them in the pair's directions."""
        chunk = cast(Chunk, exchange)
        if not chunk.upward:
            return self.turned(chunk)
        return self.shown(inputs, chunk, key_of(self._partner(chunk)), own_key)

    def incoming(self, exchange: ExchangeStep, rows: Mapping[int, torch.Tensor]) -> None:
        """Gather what both parties have shown, or keep what has come back."""
        chunk = cast(Chunk, exchange)
        if chunk.upward:
            self.gather(chunk, [rows[party] for party in chunk.parties])
        else:
            self.keep(chunk, rows[chunk.computer])

    def shown(
        self, inputs: torch.Tensor, chunk: Chunk, pair_key: bytes, own_key: bytes
    ) -> torch.Tensor:
        """Return what a party shows of its rows of a chunk."""
        if self._directions is None:
            self._directions = directions(self._flat(inputs), self._width)
        partner = self._partner(chunk)
        kept = self.keys[str(partner)]
        if chunk.start == 0:
            kept.data.copy_(torch.frombuffer(bytearray(pair_key), dtype=torch.uint8))
        rows = self._rows[partner][chunk.start : chunk.stop]
        reduced = self._flat(inputs[rows]).astype(np.float64) @ self._directions
        return torch.from_numpy(masked(reduced, chunk, kept.numpy().tobytes(), own_key))

    def _flat(self, inputs: torch.Tensor) -> npt.NDArray[np.float32]:
        flat: npt.NDArray[np.float32] = flat_rows(inputs, self._form).flatten(1).numpy()
        return flat

    def gather(self, chunk: Chunk, parts: Sequence[torch.Tensor]) -> None:
        """Keep what both parties have shown."""
        self._gathered(chunk).data[chunk.start : chunk.stop] = torch.cat(list(parts), dim=1)

    def turned(self, chunk: Chunk) -> torch.Tensor:
        """Return the rows of a chunk in the directions of the pair's components.

        They are zeros if something is missing, because somebody was lost on the way.
        """
        whole = self._gathered(chunk)
        if not whole.any(dim=1).all():
            return torch.zeros(chunk.num_rows, self._width)
        if chunk.start == 0 or chunk.parties not in self._joint:
            self._joint[chunk.parties] = joint_directions(whole.numpy())
        rows = whole[chunk.start : chunk.stop].numpy().astype(np.float64)
        return torch.from_numpy((rows @ self._joint[chunk.parties]).astype(np.float32))

    def keep(self, chunk: Chunk, rows: torch.Tensor) -> None:
        """Take the mask off what came back."""
        partner = self._partner(chunk)
        kept, key = self.components[str(partner)], self.keys[str(partner)].numpy().tobytes()
        found = unmasked(rows.numpy(), chunk, key).astype(np.float32)
        kept.data[chunk.start : chunk.stop] = torch.from_numpy(found)
        if chunk.is_last:
            kept.data.copy_(torch.from_numpy(with_fixed_signs(kept.numpy())))
            self._places.pop(partner, None)

    def targets(self, peer: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which of these rows are shared with a peer, and their components."""
        if peer not in self._places:
            shared = self._rows[peer]
            last = int(shared.max()) if len(shared) else -1
            places = torch.full((last + 2,), -1, dtype=torch.int64)
            if self.components[str(peer)].any():
                places[shared] = torch.arange(len(shared))
            self._places[peer] = places
        known = self._places[peer]
        at = known[rows.clamp(max=len(known) - 1)]
        kept = self.components[str(peer)]
        met = torch.nonzero(at >= 0).squeeze(1)
        return met, kept[at[met]]

    def _partner(self, chunk: Chunk) -> int:
        return next(k for k in chunk.parties if k in self._rows)

    def _gathered(self, chunk: Chunk) -> nn.Parameter:
        return cast(nn.Parameter, self.masked["{}-{}".format(*chunk.parties)])


def _fixed(tensors: dict[str, torch.Tensor]) -> nn.ParameterDict:
    return nn.ParameterDict({k: nn.Parameter(t, requires_grad=False) for k, t in tensors.items()})


def _computed_by(client: int, num_clients: int) -> list[tuple[int, int]]:
    """Return the pairs whose matrices a client puts together."""
    pairs = [(j, k) for k in range(num_clients) for j in range(k)]
    if num_clients == 2:
        return [(0, 1)] if client == 0 else []
    return [
        pair
        for pair in sorted(pairs)
        if next(c for c in range(num_clients) if c not in pair) == client
    ]
