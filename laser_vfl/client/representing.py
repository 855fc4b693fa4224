"""Answers peers that predict: representations of those of their samples that we hold."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

import grpc.aio
import numpy as np
import torch

from laser_vfl.client.edition import Edition
from laser_vfl.client.serving import Serving
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import (
    ContractError,
    IdentityError,
    LaserError,
    LimitExceeded,
    quoted,
)
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.identity import caller_name
from laser_vfl.wire.protocol import MAX_IDS
from laser_vfl.wire.tensors import encode_tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who asks, and whether a certificate says so."""

    name: str
    is_certified: bool


class Representing:
    """The Represent call. Only members of the federation are answered, and not without bounds."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._streams: set[asyncio.Task[Any] | None] = set()

    async def serve(self, requests: Any, context: Any) -> None:
        """Answer one peer's questions for as long as its stream is open."""
        stream = asyncio.current_task()
        self._streams.add(stream)
        caller = None
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                caller = caller or _identify(request.sender, context)
                await context.write(await self._represent(caller, request))
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
        num_ids, rest = divmod(len(request.digests), DIGEST_BYTES)
        if rest or num_ids > MAX_IDS:
            raise ContractError(
                f"at most {MAX_IDS} blinded ids of {DIGEST_BYTES} bytes each are answered at once"
            )
        is_member = caller.name in serving.known_clients
        if caller.is_certified and not is_member:
            raise IdentityError(f"{quoted(caller.name)} is not a member of this federation")
        account = caller.name if is_member else "anyone"
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
        width, dtype = edition.model.settings.representation_dim, edition.model.wire_dtype
        if num_ids > edition.max_rows:
            raise ContractError("so many representations do not fit into a message")
        digests = np.frombuffer(request.digests, np.uint8).reshape(num_ids, DIGEST_BYTES)
        holdings = edition.holdings  # of this moment: they may be replaced at any other
        rows = holdings.find(digests)
        places = np.flatnonzero(rows >= 0)
        own_nd = torch.empty(0, width)
        if len(places):
            inputs = holdings.inputs(rows[places])
            own_nd = await edition.representation.submit(inputs)
            serving.accounts.served(account, len(places))
        response = pb.RepresentResponse(places=places.astype("<u4").tobytes())
        encode_tensor(own_nd, dtype, response.representations)
        return response

    async def _edition(self, run: str) -> Edition | None:
        try:
            return await self._serving.edition(run)
        except LaserError as error:  # which is none of the caller's business
            log.error("cannot answer for run %s: %s", run, error)
            return None


def _identify(claimed: str, context: Any) -> Caller:
    """Return who asks: whom the certificate names, or, without TLS, who it says it is."""
    name = caller_name(context)
    if name is None:
        return Caller(claimed, is_certified=False)
    if name != claimed:
        raise IdentityError(
            f"the certificate names {quoted(name)}, not {quoted(claimed)}",
            hint="a client's certificate has its name in the roster as common name",
        )
    return Caller(name, is_certified=True)
