"""One client's training with nobody else there: what it would send is encoded, and goes nowhere."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from laser_vfl.cli.plan_forecast import Federation
from laser_vfl.cli.plan_walk import alignments_of
from laser_vfl.client.block import build_learner, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, pick_device
from laser_vfl.client.exchange import Exchange
from laser_vfl.client.inbox import Key, Kind
from laser_vfl.client.mail import Mail
from laser_vfl.client.progress import Progress
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.exchange import WIRE_DTYPES
from laser_vfl.core.plan import Share
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor

ORDER_KEY = b"an order of samples for a forecast"


def practice(
    config: ClientConfig, federation: Federation, groups: Sequence[Group]
) -> tuple[Exchange, "UnsentMail"]:
    """Return what a client of this configuration trains with; its rows stand in for any others.

    To be called where an event loop runs.
    """
    roster = federation.roster
    if config.name not in roster:
        raise MismatchError(
            f"{config.name} is not in the roster of the coordinator",
            where=config.where("name"),
            hint=f"it has {', '.join(roster)}",
        )
    me = roster.index(config.name)
    block = load_block(config, ORDER_KEY)
    told = alignments_of(groups, len(roster))[me]
    table = np.arange(len(block.train.inputs))
    rows = {g: np.resize(table, len(places)) for g, places in told.rows.items()}
    alignment = ClientAlignment(told.groups, rows)
    device = pick_device(config.device, where=config.where("device"))
    learner = build_learner(
        config,
        block,
        federation.settings,
        roster,
        federation.labels,
        device,
        alignment=alignment,
    )
    mail = UnsentMail(federation, me)
    return Exchange(learner, Host(device), mail, block.train, alignment), mail


class UnsentMail(Mail):
    """Notes how long each frame is that it would send; what it receives are zeros."""

    def __init__(self, federation: Federation, me: int) -> None:
        peers = [Peer(k, name, 1, "127.0.0.1:1") for k, name in enumerate(federation.roster)]
        view = MemberView(
            run="0" * 32,
            generation=1,
            me=peers[me],
            peers=tuple(peer for peer in peers if peer.index != me),
            heads=federation.labels,
            next_steps=tuple((peer.index, 0) for peer in peers),
            seed=0,
        )
        self.links = _Nobody()
        links: Any = self.links
        settings = federation.settings
        dtype = WIRE_DTYPES[settings.wire_precision]
        super().__init__(links, view, Progress(), dtype, settings.max_norm)

    def key_of(self, peer: int) -> bytes:
        """Return what a key looks like."""
        return bytes(32)

    def check(self) -> None:
        """Nothing ends it."""

    def _take(self, keys: Sequence[Key]) -> dict[Key, Any]:
        return {}

    def _receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int, dtype: torch.dtype
    ) -> dict[int, torch.Tensor]:
        received = {}
        for share in shares:
            spec = TensorSpec((share.num_rows, width), dtype)
            message = encode_tensor(torch.zeros(spec.shape, dtype=dtype), dtype)
            tensor = decode_tensor(message, spec)
            received[share.peer] = self._usable(tensor) if dtype.is_floating_point else tensor
        return received


class _Nobody:
    def __init__(self) -> None:
        self.lengths: list[tuple[int, int]] = []
        """To whom, and how many bytes."""

    def send(self, kind: Kind, frames: Iterable[tuple[int, bytes]]) -> None:
        """Take note of frames, and drop them."""
        self.lengths += [(peer, len(frame)) for peer, frame in frames]
