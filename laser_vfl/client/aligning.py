"""This client's way through an alignment: from the call to knowing its own rows."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.curve import Curve
from laser_vfl.client.digest_index import DigestIndex, Digests
from laser_vfl.client.ledger import Ledger
from laser_vfl.client.listing import Listing
from laser_vfl.client.naming import Naming
from laser_vfl.client.outcome import Most, check_members, check_rows, most_of
from laser_vfl.client.ring import Coming, Refusal, Ring, RingReception, sha256
from laser_vfl.client.ring_call import Promise, Promises, RingCall, read_promises
from laser_vfl.client.session import Session
from laser_vfl.core.alignment import ClientAlignment, num_held
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused, ContractError, LaserError
from laser_vfl.core.purpose import Scheme, tables_of
from laser_vfl.data import POINT_BYTES, new_scalar
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.alignments import TABLE_NAMES, TABLES
from laser_vfl.wire.audit import Audit
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.patience import SLOWEST_BYTES_PER_S
from laser_vfl.wire.peer_traffic import PeerTraffic

log = logging.getLogger(__name__)

GRACE_S = 15.0
"""How long the coordinator may take to notice that a peer has died, before it is blamed."""

STALL_S = 120.0
"""A ring in which nothing comes for so long stands still."""

STALL_HOP_S = 15.0
"""For so much longer than the one before it a client waits, who knows better where a list is."""

MAX_REASON = 280
"""How long a reason may be that others are told."""


@dataclass(frozen=True)
class Aligned:
    """The outcome of an alignment at this client."""

    call: RingCall
    scheme: Scheme
    tables: Mapping[str, ClientAlignment]
    """Of each table: all group sizes, and this client's rows, or places in its list of people."""
    naming: Naming | None = None
    """How people are named from now on, if not by digests."""


class Aligner:
    """Takes part in one alignment after another. A thread for each core does the curve's work."""

    def __init__(
        self,
        config: ClientConfig,
        session: Session,
        credentials: Credentials,
        reception: RingReception,
        ledger: Ledger,
        audit: Audit,
        traffic: PeerTraffic | None = None,
    ) -> None:
        self.ledger = ledger
        self._traffic = traffic
        self._audit = audit
        self._config = config
        self._session = session
        self._credentials = credentials
        self._reception = reception
        self._num_threads = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="curve")

    def close(self) -> None:
        """Work no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def align(
        self,
        call: RingCall,
        scheme: Scheme,
        lists: Mapping[str, Listing],
        known: Naming | None = None,
    ) -> Aligned:
        """Align these lists with those of the other members.

        For newcomers, `known` has those who were aligned before: they are not blinded again.
        """
        outcome, reason = "ended", ""
        try:
            aligned = await self._align(call, scheme, lists, known)
            outcome = "aligned"
            return aligned
        except LaserError as error:
            outcome = "refused" if isinstance(error, AlignmentRefused) else "failed"
            reason = error.message
            raise
        finally:
            self._audit.note(
                "alignment",
                id=call.id,
                purpose=call.purpose.value,
                members=call.names,
                outcome=outcome,
                num_rows={table: len(listed) for table, listed in lists.items()},
                reason=reason,
            )

    async def _align(
        self,
        call: RingCall,
        scheme: Scheme,
        lists: Mapping[str, Listing],
        known: Naming | None,
    ) -> Aligned:
        config = self._config
        log.info("aligning %s with %s (%s)", call.id, ", ".join(call.names), call.purpose.value)
        if scheme == "hmac":
            tables = tables_of(call.purpose, scheme)
            digests = {table: lists[table].digests for table in tables}
            outcome = await submit(self._session, call, config.name, digests, config.max_people)
            return Aligned(call, scheme, at_rows(outcome, lists))
        self.ledger.check(call.purpose)
        scalar = known.scalar if known else new_scalar()
        curve = Curve(scalar, config.federation, call.run, self._threads, self._num_threads)
        tables = tables_of(call.purpose, scheme)
        ring = Ring(call, config.name, tables, curve, self._credentials, self._traffic)
        attempt = _Attempt(ring, curve, lists, known, self._session, self.ledger, config.max_people)
        async with self._reception.opened(ring):
            return await attempt.run()


class _Attempt:
    """One alignment by points, which the coordinator or a peer may end."""

    def __init__(
        self,
        ring: Ring,
        curve: Curve,
        lists: Mapping[str, Listing],
        known: Naming | None,
        session: Session,
        ledger: Ledger,
        max_people: int,
    ) -> None:
        self._max_people = max_people
        self._ring = ring
        self._curve = curve
        self._lists = lists
        self._known = known
        self._session = session
        self._ledger = ledger
        self._is_submitting = False

    async def run(self) -> Aligned:
        """Do the work, unless somebody ends it; then say why."""
        call, ring = self._ring.call, self._ring
        nothing = dict.fromkeys(ring.tables, Most())
        work = asyncio.create_task(self._work())
        over = asyncio.create_task(self._session.directive(self._is_over))
        stall = asyncio.create_task(self._stall())
        try:
            ends: list[asyncio.Future[Any]] = [work, over, stall, ring.failure]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if over.done():
                over.result()
                await self._session.fetch_alignment(call.id, nothing)  # which says why
                raise AlignmentOver("the alignment ended without this client")
            failed = ring.failure if ring.failure.done() else stall
            refusal = failed.exception()
            assert isinstance(refusal, Refusal)
            with contextlib.suppress(AlignmentOver):  # perhaps it is too late to refuse
                await self._refuse(refusal)
            if self._is_submitting:
                return await work  # the coordinator has decided which of the two came first
            await self._session.fetch_alignment(call.id, nothing)  # which says how it ended
            raise AlignmentOver(str(refusal))
        finally:
            for task in (work, over, stall):
                task.cancel()
            await asyncio.gather(work, over, stall, return_exceptions=True)

    def _is_over(self, directive: pb.Directive) -> bool:
        """Whether it ended before this client had done its part."""
        return not self._is_submitting and directive.gathering.call.id != self._ring.call.id

    def _has_commitments(self, directive: pb.Directive) -> bool:
        told = directive.gathering.call
        return told.id == self._ring.call.id and bool(told.commitments)

    async def _work(self) -> Aligned:
        ring, session, lists = self._ring, self._session, self._lists
        call, tables = ring.call, ring.tables
        blinded = {table: await self._curve.blind(lists[table].ids, table) for table in tables}
        mine = [
            await asyncio.to_thread(_commitment, table, points) for table, points in blinded.items()
        ]
        await session.commit(call.id, mine)
        directive = await session.directive(self._has_commitments)
        promises = read_promises(directive.gathering.call, call, tables, self._max_people)
        for name in call.names:
            sizes = [f"{promises[name, table].num_points} people to {table}" for table in tables]
            log.info("%s brings %s", name, ", ".join(sizes))
        if any(
            promises[ring.me, TABLE_NAMES[c.table]] != Promise(c.num_points, c.sha256) for c in mine
        ):
            raise ContractError("the coordinator tells of another commitment than this client made")
        self._ledger.note(call.purpose)
        ring.depart(promises)
        people, listed = lists["serve"].digests, {}
        for table in tables:  # one after another, so that memory holds few lists at a time
            home = await ring.travel(table, blinded.pop(table))
            points = np.frombuffer(home, dtype=np.uint8).reshape(-1, POINT_BYTES)
            if table == "serve" and self._known is not None:
                people, points = _with_known(self._known, people, points)
            self._is_submitting = not blinded
            listed[table] = most_of(len(points), self._most(promises, table).values())
            await session.submit_ids(call.id, table, points.reshape(-1).data)
        outcome = await fetch(session, call, ring.me, listed)
        for table, alignment in outcome.items():
            check_members(num_held(alignment.groups, call.roster), self._most(promises, table))
        serve = outcome.pop("serve")
        naming = await asyncio.to_thread(
            Naming,
            call.id,
            call.run,
            call.names,
            self._curve.scalar,
            people,
            points,
            serve.groups,
            serve.rows,
        )
        return Aligned(call, "ecdh", {**at_rows(outcome, lists), "serve": serve}, naming)

    def _most(self, promises: Promises, table: str) -> dict[str, int]:
        """How many people of a table each member can have by what it has committed to."""
        call, known = self._ring.call, self._known
        before = num_held(known.groups, call.roster) if known else dict.fromkeys(call.names, 0)
        return {name: before[name] + promises[name, table].num_points for name in call.names}

    async def _stall(self) -> None:
        """Fail when lists that should be on their way are not."""
        ring, num_seen, seen_at = self._ring, -1, 0.0
        while True:
            coming, now = ring.coming(), time.monotonic()
            if not coming or num_seen != ring.num_messages:
                num_seen, seen_at = ring.num_messages, now
            if any(now - (c.begun_at or now) > _transfer_s(c) + _hops_s(c) for c in coming):
                raise Refusal(ring.previous.name, "its lists come too slowly", gone=True)
            if coming and now - seen_at > min(_patience_s(c) for c in coming):
                reason = f"nothing has come from it for {now - seen_at:.0f} s"
                raise Refusal(ring.previous.name, reason, gone=True)
            await asyncio.sleep(STALL_HOP_S / 10)

    async def _refuse(self, refusal: Refusal) -> None:
        """Tell everybody. The coordinator has some time to notice first who has died."""
        id = self._ring.call.id
        if refusal.gone:
            log.warning("waiting for the coordinator's word on %s", refusal)
            try:
                async with asyncio.timeout(GRACE_S):
                    await self._session.directive(lambda d: d.gathering.call.id != id)
                return
            except TimeoutError:
                pass
        log.error("cannot go on with the alignment because of %s", refusal)
        await self._session.refuse(
            id, refusal.peer, refusal.reason[:MAX_REASON], unreachable=refusal.gone
        )


async def submit(
    session: Session, call: RingCall, me: str, lists: Mapping[str, Digests], max_people: int
) -> dict[str, ClientAlignment]:
    """Submit blinded lists; return where each of their members stands, once all have submitted.

    Nobody has said how many people it brings; `max_people` is the most that anybody may.
    """
    for table, blinded in lists.items():
        await session.submit_ids(call.id, table, np.ascontiguousarray(blinded).reshape(-1).data)
    brought = [max_people] * len(call.names)
    listed = {table: most_of(len(blinded), brought) for table, blinded in lists.items()}
    return await fetch(session, call, me, listed)


async def fetch(
    session: Session, call: RingCall, me: str, listed: Mapping[str, Most]
) -> dict[str, ClientAlignment]:
    """Return where the members of lists stand that were submitted, once all have submitted."""
    outcome = await session.fetch_alignment(call.id, listed)
    for table, most in listed.items():
        check_rows(outcome[table], most.num_rows, call.roster.index(me), len(call.roster))
    return outcome


def at_rows(
    outcome: Mapping[str, ClientAlignment], lists: Mapping[str, Listing]
) -> dict[str, ClientAlignment]:
    """Turn places in lists into rows of tables."""
    return {table: lists[table].at_rows(alignment) for table, alignment in outcome.items()}


def _transfer_s(coming: Coming) -> float:
    """How long a list may take to the client after its owner, which passes nothing on before.

    Who passes it on needs less: it is at work on each point as soon as it has come.
    """
    return STALL_S + coming.num_points * POINT_BYTES / SLOWEST_BYTES_PER_S


def _patience_s(coming: Coming) -> float:
    """How long nothing may come while a list is on its way: the nearer its owner, the less."""
    held_up_s = _transfer_s(coming) if coming.rank else STALL_S
    return held_up_s + _hops_s(coming)


def _hops_s(coming: Coming) -> float:
    return coming.rank * STALL_HOP_S


def _commitment(table: str, points: bytes | bytearray) -> pb.Commitment:
    return pb.Commitment(
        table=TABLES[table],
        num_points=len(points) // POINT_BYTES,
        sha256=sha256(points),
    )


def _with_known(known: Naming, digests: Digests, points: Digests) -> tuple[Digests, Digests]:
    """Put those who were aligned before in front; who comes again under a new digest comes once."""
    kept = known.known & (DigestIndex(points).find(known.points) < 0)
    return (
        np.concatenate([known.digests[kept], digests]),
        np.concatenate([known.points[kept], points]),
    )
