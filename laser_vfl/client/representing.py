"""Answers peers that predict: representations of those of their samples that we hold."""

import asyncio
import logging
import time
from typing import Any

import grpc.aio
import numpy as np
import torch

from laser_vfl.client.digest_index import Digests
from laser_vfl.client.edition import Edition
from laser_vfl.client.naming import NAME
from laser_vfl.client.serving import Serving
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.bounds import Bounds
from laser_vfl.core.errors import (
    ContractError,
    IdentityError,
    LaserError,
    LimitExceeded,
    quoted,
)
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.access import Caller, identify
from laser_vfl.wire.audit import Audit
from laser_vfl.wire.frames import bytes_read, bytes_written
from laser_vfl.wire.patience import in_time
from laser_vfl.wire.peer_traffic import PeerTraffic
from laser_vfl.wire.protocol import MAX_IDS
from laser_vfl.wire.tensors import encode_tensor

log = logging.getLogger(__name__)

RELEASED_INLINE = 4096
"""Noise on so many values takes no more than a thread would."""

ANYONE = "anyone"


class Representing:
    """The Represent call. Only members of the federation are answered, and not without bounds."""

    def __init__(self, serving: Serving, audit: Audit, traffic: PeerTraffic | None = None) -> None:
        self._traffic = traffic or PeerTraffic()
        self._serving = serving
        self._audit = audit
        self._streams: set[asyncio.Task[Any] | None] = set()

    async def serve(self, requests: Any, context: Any) -> None:
        """Answer one peer's questions for as long as its stream is open."""
        stream = asyncio.current_task()
        self._streams.add(stream)
        caller = None
        try:
            request = await in_time(context.read())
            while request is not grpc.aio.EOF:
                caller = caller or identify(request.sender)
                num_read = bytes_read()
                response = await self._represent(caller, request)
                account = self._account(caller)
                self._traffic.received(account, "prediction", num_read)
                await context.write(response)
                self._traffic.sent(account, "prediction", bytes_written())
                request = await context.read()
        finally:
            self._streams.discard(stream)

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams:
            if stream is not None:
                stream.cancel()

    async def _represent(
        self, caller: Caller, request: pb.RepresentRequest
    ) -> pb.RepresentResponse:
        serving = self._serving
        num_ids = _num_ids(request)
        account = self._account(caller)
        if caller.is_certified and account == ANYONE:
            raise IdentityError(f"{quoted(caller.name)} is not a member of this federation")
        wait_s = serving.accounts.admit(account, num_ids, time.monotonic())
        if wait_s > 0:
            raise LimitExceeded(
                f"{account} asks {serving.config.name} too much",
                hint=f"ask again in {wait_s:.3f} s",
                retry_after_s=wait_s,
            )
        edition = await self._edition(request.run)
        if edition is None:
            return pb.RepresentResponse(other_run=serving.served_run or "none")
        settings, dtype = edition.model.settings, edition.model.wire_dtype
        if num_ids > edition.max_rows:
            raise ContractError("so many representations do not fit into a message")
        digests = _digests(request, edition, caller)
        if digests is None:
            known = edition.naming.id if edition.naming else "none"
            return pb.RepresentResponse(other_alignment=known)
        holdings = edition.holdings  # of this moment: they may be replaced at any other
        rows = holdings.find(digests)
        places = np.flatnonzero(rows >= 0)
        if not edition.model.is_asked_by(caller.name):
            places = places[:0]
        own_nd = torch.empty(0, settings.exchanged_width(len(edition.model.roster)))
        if len(places):
            inputs = holdings.inputs(rows[places])
            own_nd = await edition.representation.submit(inputs)
            own_nd = edition.model.concerning(own_nd, caller.name)
            if edition.model.release is not None:
                own_nd = await self._released(edition, own_nd, digests[places], inputs)
            unfit = Bounds(settings.max_norm, dtype).unfit_to_send(own_nd.numpy())
            if unfit is not None:  # nobody could use these; the others are as good as ever
                log.warning("the model of run %s diverges on %d samples", request.run, unfit.sum())
                places, own_nd = places[~unfit], own_nd[torch.from_numpy(~unfit)]
            serving.accounts.served(account, len(places))
        if num_ids:  # a probe is no question
            peer = {"peer": account}
            self._audit.count("served", peer, requests=1, ids_asked=num_ids, ids_served=len(places))
        response = pb.RepresentResponse(places=places.astype("<u4").tobytes())
        encode_tensor(own_nd, dtype, response.representations)
        return response

    def _account(self, caller: Caller) -> str:
        """Return by which name a peer's questions are counted: that of a member, or of nobody."""
        return caller.name if caller.name in self._serving.known_clients else ANYONE

    async def _released(
        self, edition: Edition, own_nd: torch.Tensor, digests: Digests, inputs: torch.Tensor
    ) -> torch.Tensor:
        """Return what leaves this client; noise on many rows would hold up the event loop."""
        release = edition.model.released
        if own_nd.numel() <= RELEASED_INLINE:
            return release(own_nd, digests, inputs)
        loop = asyncio.get_running_loop()
        executor = self._serving.executor
        return await loop.run_in_executor(executor, release, own_nd, digests, inputs)

    async def _edition(self, run: str) -> Edition | None:
        try:
            return await self._serving.edition(run)
        except LaserError as error:  # which is none of the caller's business
            log.error("cannot answer for run %s: %s", run, error)
            return None


def _num_ids(request: pb.RepresentRequest) -> int:
    """Return how many samples a question is about."""
    names, size = request.digests, DIGEST_BYTES
    if request.alignment:
        names, size = request.names, NAME.itemsize
    num_ids, rest = divmod(len(names), size)
    if rest or num_ids > MAX_IDS:
        raise ContractError(f"at most {MAX_IDS} samples, {size} bytes each, are answered at once")
    return num_ids


def _digests(request: pb.RepresentRequest, edition: Edition, caller: Caller) -> Digests | None:
    """Return this client's digests of the samples; None if they are named by another alignment."""
    if edition.naming is None:
        if request.alignment:
            return None
        return np.frombuffer(request.digests, np.uint8).reshape(-1, DIGEST_BYTES)
    roster = edition.model.roster
    if request.digests or caller.name not in roster:
        raise ContractError("samples are named by the alignment, and only to its members")
    naming = edition.naming_of(request.alignment)
    if naming is None:
        return None if request.names else np.empty((0, DIGEST_BYTES), np.uint8)
    return naming.digests_of(request.names, roster.index(caller.name))
