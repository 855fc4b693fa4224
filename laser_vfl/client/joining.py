"""From nothing to a view: register, submit ids, fetch the alignment, wait until all are ready."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laser_vfl.client.session import RETRY_S, Session, Welcome
from laser_vfl.client.view import MemberView, member_view
from laser_vfl.core.alignment import ClientAlignment, num_shared
from laser_vfl.core.errors import AddressError, IdentityError, NotRegistered, TrainingStopped
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

MAX_HUNG_UP = 5
"""So often a daemon may close a connection while it restarts; one that always does refuses us."""


@dataclass(frozen=True)
class Joined:
    """A run that is about to start, with this client in it."""

    welcome: Welcome
    alignments: Mapping[str, ClientAlignment]
    view: MemberView


async def join(
    session: Session,
    client: str,
    digests_by_table: Mapping[str, npt.NDArray[np.uint8]],
    accept: Callable[[Welcome], None],
    patience_s: float,
) -> Joined:
    """Join the federation. A coordinator that is not up yet, or restarts, is waited for.

    `accept` sees what the coordinator demands before anything is promised, and may refuse.
    """
    while True:
        welcome = await _register(session, patience_s)
        accept(welcome)
        session.open()
        try:
            for table, digests in digests_by_table.items():
                await session.submit_ids(table, digests)
            alignments, view = await _wait_for_view(session)
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
        return Joined(welcome, alignments, member_view(view, welcome.roster, client))


async def _register(session: Session, patience_s: float) -> Welcome:
    give_up_at = time.monotonic() + patience_s
    num_hung_up = 0
    told = False
    while True:
        try:
            return await session.register()
        except AddressError as error:
            num_hung_up = num_hung_up + 1 if "Socket closed" in error.message else 0
            if num_hung_up >= MAX_HUNG_UP:
                raise IdentityError(
                    "the coordinator hangs up on this client",
                    hint="are both sides on TLS or both on --insecure, and does the coordinator's "
                    "ca know this client's cert?",
                ) from None
            if time.monotonic() > give_up_at:
                raise
            if not told:
                log.warning("%s; trying for %g s", error, patience_s)
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
