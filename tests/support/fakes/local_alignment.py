"""A coordinator in the same process, as the clients of one alignment see it."""

import asyncio
import json
from types import SimpleNamespace

import numpy as np

from laser_vfl.client.alignment.aligner import Aligner
from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.alignment.ring import RingServicer
from laser_vfl.client.alignment.ring_call import RingCall
from laser_vfl.client.waiting_times import DEFAULT_TIMES
from laser_vfl.core.alignment import DIGEST_BYTES, align
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.security.credentials import Credentials
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.data.client_people import listed
from tests.support.fakes.local_ring import FEDERATION, member


class LocalAlignment:
    """One alignment: it calls the members, passes on what they commit to, and groups lists."""

    def __init__(self, names, *, id="alignment-1", run=None, purpose=AlignmentPurpose.RUN):
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
                    told.gathering.call.commitments.append(self.commitments[name])
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
    """What a client has for a session in this alignment."""

    def __init__(self, shared, name):
        self.shared = shared
        self.name = name

    async def _change(self, change):
        async with self.shared.changed:
            change()
            self.shared.changed.notify_all()

    async def directive(self, wanted):
        shared = self.shared
        async with shared.changed:
            await shared.changed.wait_for(lambda: wanted(shared.directive))
        return shared.directive

    async def commit(self, alignment, num_points, sha256, num_known=0):
        assert alignment == self.shared.call.id
        mine = pb.Commitment(
            client=self.name, num_points=num_points, sha256=sha256, num_known=num_known
        )
        await self._change(lambda: self.shared.commitments.update({self.name: mine}))

    async def submit_ids(self, alignment, table, blinded, places=None):
        assert alignment == self.shared.call.id
        rows = np.frombuffer(bytes(blinded), np.uint8).reshape(-1, DIGEST_BYTES)
        lists = {(self.name, table): rows}
        if places is not None:
            assert table == "serve"
            lists |= {
                (self.name, other): rows[places == place]
                for place, other in enumerate(("train", "test"))
            }
        await self._change(lambda: self.shared.lists.update(lists))

    async def fetch_alignment(self, alignment, tables):
        shared = self.shared
        if alignment != shared.call.id:
            raise AlignmentOver("that alignment is not under way any more")
        num_lists = len(shared.call.names) * len(tables)
        async with shared.changed:
            await shared.changed.wait_for(lambda: shared.failure or len(shared.lists) == num_lists)
        if shared.failure:
            raise shared.failure
        return shared.outcome(self.name, tables)

    async def refuse(self, alignment, peer, reason, *, unreachable):
        assert alignment == self.shared.call.id
        self.shared.refusals.append((self.name, peer, reason, unreachable))
        await self.shared.end(AlignmentRefused(f"{self.name} refuses because of {peer}: {reason}"))


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

    def __init__(self, wire, name, directory, per_day=100, times=DEFAULT_TIMES):
        self.name = name
        self.ledger = AlignmentLedger(directory / f"{name}.json", per_day)
        self.audit = AuditLog(directory / f"{name}.jsonl")
        self.reception = RingServicer()
        self._wire = wire
        self._times = times

    async def align(self, shared, lists, known=None, scheme="ecdh", seat=None, present=()):
        await self._wire.listen(self.name, self.reception.serve)
        aligner = Aligner(
            config_of(self.name),
            seat or Seat(shared, self.name),
            Credentials(),
            self.reception,
            self.ledger,
            self.audit,
            times=self._times,
        )
        try:
            return await aligner.align(shared.call, scheme, lists, known, present)
        finally:
            aligner.close()


def num_counted(directory, name="bank"):
    """Return how many alignments count for a client; those given back have a negative time."""
    path = directory / f"{name}.json"
    return sum(moment > 0 for moment in json.loads(path.read_text())) if path.exists() else 0


def lists_of(name, ids):
    """Return the lists of a client whose serving table has its other tables in front."""
    if set(ids) == {"serve"}:
        return {"serve": listed(name, ids["serve"])}
    train, test = ids["train"], ids["test"]
    everybody = listed(name, train, test, ids["serve"])
    return {
        "train": everybody.of_table(0, 0),
        "test": everybody.of_table(1, len(train)),
        "serve": everybody,
    }
