"""Answers peers that predict: representations of those of their samples that we hold."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc.aio
import numpy as np
import torch

from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import (
    ContractError,
    IdentityError,
    LaserError,
    LimitExceeded,
    quoted,
)
from laser_vfl.core.privacy.bounds import Bounds
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.access import Caller, identify
from laser_vfl.transport.deadlines import in_time, written_in_time
from laser_vfl.transport.frames import bytes_read, bytes_written
from laser_vfl.transport.protocol import MAX_IDS
from laser_vfl.transport.tensor_codec import encode_tensor
from laser_vfl.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

RELEASED_INLINE = 4096
"""Noise on so many values takes no more than a thread would."""

MAX_WAIT_S = 10.0
"""For so long a question waits for room; then the peer is told to ask again."""

ANYONE = "anyone"


class RepresentationService:
    """The Represent call. Only members of the federation are answered, and not without bounds."""

    def __init__(
        self,
        client: str,
        registry: ModelRegistry,
        accounts: Accounts,
        met: Callable[[], frozenset[str]],
        audit: AuditLog,
        budget: FairBudget,
        traffic: PeerTraffic | None = None,
    ) -> None:
        """`budget` is memory for requests, in bytes."""
        self._budget = budget
        self._client = client
        self._registry = registry
        self._accounts = accounts
        self._met = met
        """Tells which clients this one has met; they are members before there is a model."""
        self._traffic = traffic or PeerTraffic()
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
                await written_in_time(context.write(response))
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
        num_ids = _num_ids(request)
        account = self._account(caller)
        if caller.is_certified and account == ANYONE:
            raise IdentityError(f"{quoted(caller.name)} is not a member of this federation")
        wait_s = self._accounts.admit(account, num_ids, time.monotonic())
        if wait_s > 0:
            raise LimitExceeded(
                f"{account} asks {self._client} too much",
                hint=f"ask again in {wait_s:.3f} s",
                retry_after_s=wait_s,
            )
        model = await self._model(request.run)
        if model is None:
            return pb.RepresentResponse(other_run=self._registry.served_run or "none")
        if num_ids > model.max_rows:
            raise ContractError("so many representations do not fit into a message")
        # A question that is too long for all there is has to be alone.
        num_bytes = min(num_ids * model.row_cost.num_bytes, self._budget.total)
        until = time.monotonic() + MAX_WAIT_S
        async with self._budget.holding(f"peer {account}", num_bytes, until):
            return await self._answer(caller, account, request, model, num_ids)

    async def _answer(
        self,
        caller: Caller,
        account: str,
        request: pb.RepresentRequest,
        model: ServedModel,
        num_ids: int,
    ) -> pb.RepresentResponse:
        settings, dtype = model.model.settings, model.model.wire_dtype
        digests = _digests(request, model, caller)
        if digests is None:
            known = model.pseudonyms.id if model.pseudonyms else "none"
            return pb.RepresentResponse(other_alignment=known)
        row_index = model.row_index  # of this moment: it may be replaced at any other
        rows = row_index.find(digests)
        places = np.flatnonzero(rows >= 0)
        if not model.model.is_asked_by(caller.name):
            places = places[:0]
        own_nd = torch.empty(0, settings.exchanged_width(len(model.model.roster)))
        if len(places):
            inputs = row_index.inputs(rows[places])
            own_nd = await model.representation.submit(inputs)
            own_nd = model.model.concerning(own_nd, caller.name)
            if model.model.release is not None:
                own_nd = await self._released(model, own_nd, digests[places], inputs)
            unfit = Bounds(settings.max_norm, dtype).unfit_to_send(own_nd.numpy())
            if unfit is not None:  # nobody could use these; the others are as good as ever
                log.warning("the model of run %s diverges on %d samples", request.run, unfit.sum())
                places, own_nd = places[~unfit], own_nd[torch.from_numpy(~unfit)]
            self._accounts.served(account, len(places))
        if num_ids:  # a probe is no question
            peer = {"peer": account}
            self._audit.count("served", peer, requests=1, ids_asked=num_ids, ids_served=len(places))
        response = pb.RepresentResponse(places=places.astype("<u4").tobytes())
        encode_tensor(own_nd, dtype, response.representations)
        return response

    def _account(self, caller: Caller) -> str:
        """Return by which name a peer's questions are counted: that of a member, or of nobody."""
        current = self._registry.current
        members = current.model.roster if current else self._met()
        return caller.name if caller.name in members else ANYONE

    async def _released(
        self, model: ServedModel, own_nd: torch.Tensor, digests: Digests, inputs: torch.Tensor
    ) -> torch.Tensor:
        """Return what leaves this client; noise on many rows would hold up the event loop."""
        release = model.model.released
        if own_nd.numel() <= RELEASED_INLINE:
            return release(own_nd, digests, inputs)
        loop = asyncio.get_running_loop()
        executor = self._registry.executor
        return await loop.run_in_executor(executor, release, own_nd, digests, inputs)

    async def _model(self, run: str) -> ServedModel | None:
        try:
            return await self._registry.get_for_peers(run)
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


def _digests(request: pb.RepresentRequest, model: ServedModel, caller: Caller) -> Digests | None:
    """Return this client's digests of the samples; None if they are named by another alignment."""
    if model.pseudonyms is None:
        if request.alignment:
            return None
        return np.frombuffer(request.digests, np.uint8).reshape(-1, DIGEST_BYTES)
    roster = model.model.roster
    if request.digests or caller.name not in roster:
        raise ContractError("samples are named by the alignment, and only to its members")
    pseudonyms = model.pseudonyms_of(request.alignment)
    if pseudonyms is None:
        return None if request.names else np.empty((0, DIGEST_BYTES), np.uint8)
    return pseudonyms.digests_of(request.names, roster.index(caller.name))
