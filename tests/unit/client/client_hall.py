"""A coordinator in the same process, as the clients of one alignment see it."""

import asyncio
from types import SimpleNamespace

import numpy as np
from client_people import listed
from client_ring import FEDERATION, member

from laser_vfl.client.aligning import Aligner
from laser_vfl.client.ledger import Ledger
from laser_vfl.client.ring import RingReception
from laser_vfl.client.ring_call import RingCall
from laser_vfl.core.alignment import DIGEST_BYTES, align
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused
from laser_vfl.core.purpose import Purpose
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.audit import Audit
from laser_vfl.wire.credentials import Credentials


class Hall:
    """One alignment: it calls the members, passes on what they commit to, and groups lists."""

    def __init__(self, names, *, id="alignment-1", run=None, purpose=Purpose.RUN):
        members = tuple(member(name) for name in names)
        self.call = RingCall(id, purpose, run or id, members, roster=tuple(names))
        self.commitments = {}
        self.lists = {}
        self.failure = None
        self.refusals = []
        self.changed = asyncio.Condition()

    @property
    def directive(self):
        """What everybody is told now."""
        told = pb.Directive(gathering=pb.Gathering())
        if self.failure is None:
            told.gathering.call.id = self.call.id
            if len(self.commitments) == len(self.call.names):
                for name in self.call.names:
                    told.gathering.call.commitments.extend(self.commitments[name])
        return told

    def outcome(self, name, tables):
        """What a member is told of each table."""
        return {
            table: align([self.lists[other, table] for other in self.call.names])[
                self.call.names.index(name)
            ]
            for table in tables
        }

    async def end(self, error):
        """End it for everybody."""
        async with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


class Seat:
    """What a client has for a session in this hall."""

    def __init__(self, hall, name):
        self.hall = hall
        self.name = name

    async def _change(self, change):
        async with self.hall.changed:
            change()
            self.hall.changed.notify_all()

    async def directive(self, wanted):
        hall = self.hall
        async with hall.changed:
            await hall.changed.wait_for(lambda: wanted(hall.directive))
        return hall.directive

    async def commit(self, alignment, commitments):
        assert alignment == self.hall.call.id
        mine = [
            pb.Commitment(client=self.name, table=c.table, num_points=c.num_points, sha256=c.sha256)
            for c in commitments
        ]
        await self._change(lambda: self.hall.commitments.update({self.name: mine}))

    async def submit_ids(self, alignment, table, blinded):
        assert alignment == self.hall.call.id
        rows = np.frombuffer(bytes(blinded), np.uint8).reshape(-1, DIGEST_BYTES)
        await self._change(lambda: self.hall.lists.update({(self.name, table): rows}))

    async def fetch_alignment(self, alignment, tables):
        hall = self.hall
        if alignment != hall.call.id:
            raise AlignmentOver("that alignment is not under way any more")
        num_lists = len(hall.call.names) * len(tables)
        async with hall.changed:
            await hall.changed.wait_for(lambda: hall.failure or len(hall.lists) == num_lists)
        if hall.failure:
            raise hall.failure
        return hall.outcome(self.name, tables)

    async def refuse(self, alignment, peer, reason, *, unreachable):
        assert alignment == self.hall.call.id
        self.hall.refusals.append((self.name, peer, reason, unreachable))
        await self.hall.end(AlignmentRefused(f"{self.name} refuses because of {peer}: {reason}"))


def config_of(name):
    return SimpleNamespace(name=name, federation=FEDERATION, max_people=1000)


def tables(train, test, *more):
    return {"train": train, "test": test, "serve": [*train, *test, *more]}


IDS = {
    "bank": tables(["ada", "bob", "cyd"], ["dan"]),
    "shop": tables(["cyd", "ada"], ["dan", "eve"]),
    "club": tables(["zoe"], [], "ada"),
}


class Client:
    """A member with everything that an alignment takes."""

    def __init__(self, wire, name, directory, per_day=100):
        self.name = name
        self.ledger = Ledger(directory / f"{name}.json", per_day)
        self.audit = Audit(directory / f"{name}.jsonl")
        self.reception = RingReception()
        self._wire = wire

    async def align(self, hall, lists, known=None, scheme="ecdh", seat=None):
        await self._wire.listen(self.name, self.reception.serve)
        aligner = Aligner(
            config_of(self.name),
            seat or Seat(hall, self.name),
            Credentials(),
            self.reception,
            self.ledger,
            self.audit,
        )
        try:
            return await aligner.align(hall.call, scheme, lists, known)
        finally:
            aligner.close()


def lists_of(name, ids):
    return {table: listed(name, mine) for table, mine in ids.items()}
