"""This client's way through an alignment: from the call to knowing its own rows."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.alignment.curve import Curve
from laser_vfl.client.alignment.ring import IncomingList, Refusal, Ring, RingServicer, sha256
from laser_vfl.client.alignment.ring_call import Promise, Promises, RingCall, read_promises
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.session.coordinator_session import Session
from laser_vfl.client.session.outcome_checks import (
    TableLimits,
    check_members,
    check_rows,
    table_limits,
)
from laser_vfl.client.tables.digest_index import DigestIndex, Digests
from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.client.tables.table_listing import Listing
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.client.work_progress import ALIGNING, WorkProgress
from laser_vfl.core.alignment import ClientAlignment, num_held
from laser_vfl.core.alignment_purpose import AlignmentPurpose, Scheme, tables_of
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused, ContractError, LaserError
from laser_vfl.data import POINT_BYTES, new_scalar
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.deadlines import SLOWEST_BYTES_PER_S
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

MAX_REASON = 280
"""How long a reason may be that others are told."""


@dataclass(frozen=True)
class Aligned:
    """The outcome of an alignment at this client."""

    call: RingCall
    scheme: Scheme
    tables: Mapping[str, ClientAlignment]
    """Of each table: all group sizes, and this client's rows, or places in its list of people."""
    pseudonyms: PseudonymTable | None = None
    """How people are named from now on, if not by digests."""


class Aligner:
    """Takes part in one alignment after another. A thread for each core does the curve's work."""

    def __init__(
        self,
        config: ClientConfig,
        session: Session,
        credentials: Credentials,
        servicer: RingServicer,
        ledger: AlignmentLedger,
        audit: AuditLog,
        traffic: PeerTraffic | None = None,
        times: WaitingTimes = DEFAULT_TIMES,
        progress: WorkProgress | None = None,
    ) -> None:
        self.ledger = ledger
        self._progress = progress or WorkProgress()
        self._traffic = traffic
        self._times = times
        self._audit = audit
        self._config = config
        self._session = session
        self._credentials = credentials
        self._servicer = servicer
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
        known: PseudonymTable | None = None,
        present: Sequence[Digests] = (),
    ) -> Aligned:
        """Align these lists with those of the other members.

        `known` has those that were aligned before; they are not blinded again. For unaligned ids
        they are not in the list, and are submitted with it; `present` then has the digests of
        everybody in this client's tables.
        """
        outcome, reason = "ended", ""
        try:
            aligned = await self._align(call, scheme, lists, known, present)
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
        known: PseudonymTable | None,
        present: Sequence[Digests],
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
        domain = known.domain if known else call.run
        # Until the others commit, they are taken to bring as many people as this client.
        total = len(lists["serve"]) * len(call.members)
        with self._progress.working(ALIGNING, total) as work:
            curve = Curve(
                scalar, config.federation, domain, self._threads, self._num_threads, work.advance
            )
            ring = Ring(call, config.name, curve, self._credentials, self._traffic, self._times)
            attempt = _Attempt(
                ring,
                curve,
                lists,
                known,
                present,
                self._session,
                self.ledger,
                config.max_people,
                self._times,
                work.expect,
            )
            async with self._servicer.opened(ring):
                return await attempt.run()


class _Attempt:
    """One alignment by points, which the coordinator or a peer may end."""

    def __init__(
        self,
        ring: Ring,
        curve: Curve,
        lists: Mapping[str, Listing],
        known: PseudonymTable | None,
        present: Sequence[Digests],
        session: Session,
        ledger: AlignmentLedger,
        max_people: int,
        times: WaitingTimes,
        expect: Callable[[int], None],
    ) -> None:
        """`expect` is told how many points there are to multiply."""
        self._expect = expect
        self._max_people = max_people
        self._times = times
        self._ring = ring
        self._curve = curve
        self._lists = lists
        self._known = known
        self._present = present
        self._session = session
        self._ledger = ledger
        self._tables = tables_of(ring.call.purpose, "ecdh")
        self._is_submitting = False
        self._counting: asyncio.Task[None] | None = None
        """Writes into the ledger that this alignment takes place, also if it ends meanwhile."""

    async def run(self) -> Aligned:
        """Do the work, unless somebody ends it; then say why.

        One that others ended, or that this client ended because of another, is given back. It is
        counted if this client's own part has failed, which is another error.
        """
        try:
            return await self._run()
        except AlignmentOver:
            if self._counting is not None:
                await asyncio.wait([self._counting])
                if self._counting.exception() is None:
                    await asyncio.to_thread(self._ledger.give_back)
            raise

    async def _run(self) -> Aligned:
        call, ring = self._ring.call, self._ring
        nothing = dict.fromkeys(self._tables, TableLimits())
        work = asyncio.create_task(self._work())
        over = asyncio.create_task(self._session.directive(self._is_over))
        stall = asyncio.create_task(self._stall())
        try:
            ends: list[asyncio.Future[Any]] = [work, over, stall, ring.failure]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not isinstance(work.exception(), Refusal):
                return work.result()
            if over.done():
                over.result()
                await self._session.fetch_alignment(call.id, nothing)  # which says why
                raise AlignmentOver("the alignment ended without this client")
            refusal = next(end for end in (work, ring.failure, stall) if end.done()).exception()
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
        call, everybody = ring.call, lists["serve"]
        is_new = np.ones(len(everybody), dtype=bool)
        if self._known is not None and call.purpose is AlignmentPurpose.RUN:
            is_new = await asyncio.to_thread(self._known.is_new, everybody.digests)
        ids = [everybody.ids[place] for place in np.flatnonzero(is_new).tolist()]
        blinded = await self._curve.blind(ids)
        num_known = int((~is_new).sum())
        if self._known is not None and call.purpose is AlignmentPurpose.UNALIGNED_IDS:
            num_known = int(self._known.known.sum())
        mine = Promise(len(ids), await asyncio.to_thread(sha256, blinded), num_known)
        del ids
        await session.commit(call.id, mine.num_points, mine.sha256, mine.num_known)
        directive = await session.directive(self._has_commitments)
        promises = read_promises(directive.gathering.call, call, self._max_people)
        counted = "new people" if self._known is not None else "people"
        for name in call.names:
            told = promises[name]
            besides = f", and {told.num_known} of before" if told.num_known else ""
            brought = told.num_points or "no"
            log.info("%s brings %s %s%s", name, brought, counted, besides)
        if promises[ring.me] != mine:
            raise ContractError("the coordinator tells of another commitment than this client made")
        most = self._most(promises)
        self._expect(sum(promise.num_points for promise in promises.values()))
        self._counting = asyncio.create_task(asyncio.to_thread(self._ledger.note, call.purpose))
        await asyncio.shield(self._counting)
        ring.depart(promises)
        travelling = ring.travel(blinded)
        del blinded  # it is let go of as soon as it is sent
        points = np.frombuffer(await travelling, dtype=np.uint8).reshape(-1, POINT_BYTES)
        people = everybody.digests
        if self._known is not None:
            is_run = call.purpose is AlignmentPurpose.RUN
            present = (people,) if is_run else self._present
            if await asyncio.to_thread(_are_others, self._known, present, points):
                reason = f"in the list of {ring.me}, it sent points of people who were known before"
                raise Refusal(ring.previous.name, reason)
        if self._known is not None and call.purpose is AlignmentPurpose.RUN:
            log.info("%d of %d people have been aligned before", (~is_new).sum(), len(is_new))
            points = _all_points(self._known, everybody, is_new, points)
        elif self._known is not None:
            people, points = _with_known(self._known, people, points)
        listed = {
            table: table_limits(
                len(points) if table == "serve" else len(lists[table]), most.values()
            )
            for table in self._tables
        }
        places = everybody.places if len(self._tables) > 1 else None
        self._is_submitting = True
        await session.submit_ids(call.id, "serve", points.reshape(-1).data, places)
        outcome = await fetch(session, call, ring.me, listed)
        for alignment in outcome.values():
            check_members(num_held(alignment.groups, call.roster), most)
        serve = outcome.pop("serve")
        pseudonyms = await asyncio.to_thread(
            PseudonymTable,
            call.id,
            call.id if call.purpose is AlignmentPurpose.RUN else call.run,
            call.names,
            self._curve.scalar,
            people,
            points,
            serve.groups,
            serve.rows,
            self._curve.run,
        )
        return Aligned(call, "ecdh", {**at_rows(outcome, lists), "serve": serve}, pseudonyms)

    def _most(self, promises: Promises) -> dict[str, int]:
        """How many people each member can have by what it has committed to.

        All members of a run know the same people of before. Unaligned ids come, too, to those who
        have missed the outcome of others, so how many were known before is their owner's word.
        """
        call, known = self._ring.call, self._known
        if known is not None and call.purpose is AlignmentPurpose.RUN:
            for name, num_before in num_held(known.groups, call.roster).items():
                if name in promises and promises[name].num_known > num_before:
                    raise Refusal(
                        name,
                        f"it brings {promises[name].num_known} people of before, when it had "
                        f"{num_before}",
                    )
        return {name: promises[name].num_people for name in call.names}

    async def _stall(self) -> None:
        """Fail when lists that should be on their way are not."""
        ring, num_seen, seen_at = self._ring, -1, 0.0
        while True:
            coming, now = ring.incoming(), time.monotonic()
            if not coming or num_seen != ring.num_messages:
                num_seen, seen_at = ring.num_messages, now
            if any(
                now - (c.begun_at or now) > self._transfer_s(c) + self._hops_s(c) for c in coming
            ):
                raise Refusal(ring.previous.name, "its lists come too slowly", gone=True)
            if coming and now - seen_at > min(self._patience_s(c) for c in coming):
                reason = f"nothing has come from it for {now - seen_at:.0f} s"
                raise Refusal(ring.previous.name, reason, gone=True)
            await asyncio.sleep(self._times.ring_hop_s / 10)

    def _transfer_s(self, coming: IncomingList) -> float:
        """How long a list may take to the client after its owner, which passes nothing on before.

        Clients further on need less: they work on each point as soon as it has come.
        """
        return self._times.ring_stall_s + coming.num_points * POINT_BYTES / SLOWEST_BYTES_PER_S

    def _patience_s(self, coming: IncomingList) -> float:
        """How long nothing may come while a list is on its way: the nearer its owner, the less."""
        held_up_s = self._transfer_s(coming) if coming.rank else self._times.ring_stall_s
        return held_up_s + self._hops_s(coming)

    def _hops_s(self, coming: IncomingList) -> float:
        return coming.rank * self._times.ring_hop_s

    async def _refuse(self, refusal: Refusal) -> None:
        """Tell everybody. The coordinator has some time to notice first who has died."""
        id = self._ring.call.id
        if refusal.gone:
            log.warning("waiting for the coordinator's word on %s", refusal)
            try:
                async with asyncio.timeout(self._times.ring_grace_s):
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
    listed = {table: table_limits(len(blinded), brought) for table, blinded in lists.items()}
    return await fetch(session, call, me, listed)


async def fetch(
    session: Session, call: RingCall, me: str, listed: Mapping[str, TableLimits]
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


def _are_others(known: PseudonymTable, present: Sequence[Digests], points: Digests) -> bool:
    """Whether new points are those of people who are known, and in the tables, by other ids.

    Somebody who is known by a digest that the tables do not have comes again under a new one.
    """
    again = DigestIndex(points).find(known.points) >= 0
    if not again.any():
        return False
    others = DigestIndex(known.digests[again])
    return any((others.find(digests) >= 0).any() for digests in present)


def _all_points(
    known: PseudonymTable, everybody: Listing, is_new: npt.NDArray[np.bool_], points: Digests
) -> Digests:
    """Return the points of everybody on a list, of whom some have just got theirs."""
    found = np.empty((len(everybody), POINT_BYTES), dtype=np.uint8)
    found[is_new] = points
    found[~is_new] = known.points_of(everybody.digests[~is_new])
    return found


def _with_known(
    known: PseudonymTable, digests: Digests, points: Digests
) -> tuple[Digests, Digests]:
    """Put those who were aligned before in front; who comes again under a new digest comes once."""
    kept = known.known & (DigestIndex(points).find(known.points) < 0)
    return (
        np.concatenate([known.digests[kept], digests]),
        np.concatenate([known.points[kept], points]),
    )
