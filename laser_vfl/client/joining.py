"""From nothing to a view: register, submit ids, fetch the alignment, wait until all are ready."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from laser_vfl.client.session import RETRY_S, Session, Welcome
from laser_vfl.client.view import MemberView, member_view
from laser_vfl.core.alignment import ClientAlignment, num_shared
from laser_vfl.core.errors import (
    AddressError,
    IdentityError,
    NotRegistered,
    TrainingStopped,
)
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

MAX_HUNG_UP = 5
"""So often a daemon may close a connection while it restarts; one that always does refuses us."""


@dataclass(frozen=True)
class Joined:
    """A run that is about to start, with this client in it."""

    roster: tuple[str, ...]
    settings: TrainingSettings
    alignments: Mapping[str, ClientAlignment]
    view: MemberView


@dataclass
class Wish:
    """Whether this client wants to train; it may come to want it while it waits."""

    wants_run: bool
    patience_s: float
    """How long to try to reach the coordinator."""
    since: float = 0.0
    """When it was made; patience is counted from then, or from the first try if that was later."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Applicant(Protocol):
    """What a client decides on its way into a run."""

    def accept(self, welcome: Welcome) -> None:
        """See what the coordinator demands before anything is promised; may refuse."""

    async def digests(self) -> Mapping[str, npt.NDArray[np.uint8]]:
        """Return the blinded ids of each table, once a run is wanted."""


async def join(session: Session, client: str, applicant: Applicant, wish: Wish) -> Joined:
    """Join the next run. A coordinator that is not up yet, or restarts, is waited for.

    A client that does not want a run itself waits, registered, until somebody does.
    """
    while True:
        wish.changed.clear()
        welcome = await _register(session, wish)
        applicant.accept(welcome)
        session.open()
        try:
            if not await _is_wanted(session, wish):
                await session.close()
                continue
            for table, digests in (await applicant.digests()).items():
                await session.submit_ids(table, digests)
            alignments, message = await _wait_for_view(session)
        except (AddressError, NotRegistered) as error:
            log.warning("%s; registering anew", error)
            await session.close()
            continue
        if len(welcome.roster) > 1 and not num_shared(alignments["train"]):
            log.warning(
                "no training row of %s is held by anybody else; is id_secret_file the same "
                "at all clients, and does data.id name the same thing?",
                client,
            )
        view = member_view(message, welcome.roster, client)
        settings = welcome.settings.model_copy(update={"seed": view.seed})
        return Joined(welcome.roster, settings, alignments, view)


async def _is_wanted(session: Session, wish: Wish) -> bool:
    """Wait until a run is wanted; false when this client has come to want one itself."""

    def called(directive: pb.Directive) -> bool:
        gathering = directive.gathering
        return not directive.HasField("gathering") or gathering.wanted or bool(gathering.run)

    call = asyncio.create_task(session.directive(called))
    change = asyncio.create_task(wish.changed.wait())
    try:
        await asyncio.wait({call, change}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            return False
        if call.result().HasField("stopped"):
            raise TrainingStopped(call.result().stopped.reason, hint="see the coordinator's log")
        return True
    finally:
        for task in (call, change):
            task.cancel()
        await asyncio.gather(call, change, return_exceptions=True)


async def _register(session: Session, wish: Wish) -> Welcome:
    started = time.monotonic()
    num_hung_up = 0
    told = False
    while True:
        try:
            return await session.register(wants_run=wish.wants_run)
        except AddressError as error:
            num_hung_up = num_hung_up + 1 if "Socket closed" in error.message else 0
            if num_hung_up >= MAX_HUNG_UP:
                raise IdentityError(
                    "the coordinator hangs up on this client",
                    hint="are both sides on TLS or both on --insecure, and does the coordinator's "
                    "ca know this client's cert?",
                ) from None
            if time.monotonic() > max(started, wish.since) + wish.patience_s:
                raise
            if not told:
                how_long = "on" if math.isinf(wish.patience_s) else f"for {wish.patience_s:g} s"
                log.warning("%s; trying %s", error, how_long)
                told = True
        await asyncio.sleep(RETRY_S)


async def _wait_for_view(session: Session) -> tuple[dict[str, ClientAlignment], pb.View]:
    while True:
        run, alignments = await session.fetch_alignment()
        session.report(state=pb.CLIENT_STATE_READY, run=run)

        def settled(directive: pb.Directive, run: str = run) -> bool:
            return not directive.HasField("gathering") or directive.gathering.run != run

        directive = await session.directive(settled)
        if directive.HasField("view") and directive.view.run == run:
            return alignments, directive.view
        if directive.HasField("stopped"):
            raise TrainingStopped(directive.stopped.reason, hint="see the coordinator's log")
        # Somebody was lost before the start, or this directive is older than the alignment.
        session.report(state=pb.CLIENT_STATE_JOINING, run="")
        await asyncio.sleep(RETRY_S / 5)
