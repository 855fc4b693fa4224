"""The training of one client without peers: frames are encoded and then dropped."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, pick_device
from laser_vfl.client.model_building import build_learner
from laser_vfl.client.peers.frame_buffer import Key, OutgoingFrame
from laser_vfl.client.peers.step_transport import ExchangeFormat, PeerTransport
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.tables.block import load_block
from laser_vfl.client.training.training_step import StepContext
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.privacy.keystream import KEY_BYTES
from laser_vfl.planning.forecast import PlannedFederation
from laser_vfl.planning.step_rounds import alignments_of
from laser_vfl.transport.tensor_codec import TensorSpec, encode_tensor
from laser_vfl.v1 import peer_pb2 as pb

ORDER_KEY = b"an order of samples for a forecast"


def offline_step_context(
    config: ClientConfig, federation: PlannedFederation, groups: Sequence[Group]
) -> tuple[StepContext, "UnsentFrames"]:
    """Return what a client of this configuration trains with; its rows serve for all samples."""
    roster = federation.roster
    if config.name not in roster:
        raise MismatchError(
            f"{config.name} is not in the roster of the coordinator",
            where=config.where("name"),
            hint=f"it has {', '.join(roster)}",
        )
    me = roster.index(config.name)
    block = load_block(config, ORDER_KEY, own_key=ORDER_KEY)
    expected = alignments_of(groups, len(roster))[me]
    table = np.arange(len(block.train.inputs))
    rows = {g: np.resize(table, len(places)) for g, places in expected.rows.items()}
    alignment = ClientAlignment(expected.groups, rows)
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
    frames = UnsentFrames()
    view, form = _view(federation, me), ExchangeFormat.of(learner)
    transport = PeerTransport(frames, view, form, Progress())
    return StepContext(learner, Host(device), transport, block.train, alignment), frames


class UnsentFrames:
    """Takes the place of the streams to peers: records the frames, and delivers zeros."""

    def __init__(self) -> None:
        self.lengths: list[tuple[int, int]] = []
        """Of each frame: to whom, and how many bytes."""

    def send(self, frames: Sequence[OutgoingFrame]) -> None:
        """Record the lengths of frames, and drop them."""
        self.lengths += [(peer, len(frame)) for peer, _, frame in frames]

    def holds(self, keys: Iterable[Key]) -> bool:
        """Say yes: frames of zeros are there whenever they are wanted."""
        return True

    def wait(self, sets: Sequence[Collection[Key]]) -> None:
        """Wait for nobody."""

    def take(self, wanted: Mapping[Key, TensorSpec | None]) -> dict[Key, pb.Frame]:
        """Return frames of zeros in the wanted shapes."""
        return {key: _zeros(spec) for key, spec in wanted.items()}

    def refuse(self, peer: int, reason: str) -> None:
        """Do nothing: zeros are never refused."""

    def key_of(self, peer: int) -> bytes:
        """Return a key of the right length; what is masked with it is dropped."""
        return bytes(KEY_BYTES)

    def check(self) -> None:
        """Do nothing: there is no run that could end."""


def _zeros(spec: TensorSpec | None) -> pb.Frame:
    frame = pb.Frame()
    if spec is not None:
        encode_tensor(torch.zeros(spec.shape), spec.dtype, frame.tensor)
    return frame


def _view(federation: PlannedFederation, me: int) -> MemberView:
    """Return a view with all clients, from the first step on."""
    peers = [Peer(k, name, 1, "127.0.0.1:1") for k, name in enumerate(federation.roster)]
    return MemberView(
        run="0" * 32,
        generation=1,
        me=peers[me],
        peers=tuple(peer for peer in peers if peer.index != me),
        heads=federation.labels,
        next_steps=tuple((peer.index, 0) for peer in peers),
        seed=0,
    )
