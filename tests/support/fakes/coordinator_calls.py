"""A client's calls to the coordinator's service, without a network."""

import asyncio

from laser_vfl.coordinator.api.coordinator_service import CoordinatorService
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.simulated_federation import SEED, Play

SETTINGS = TrainingSettings(representation_dim=2, batch_size=2, epochs=1, seed=SEED)

POINT, OTHER = bytes([1] * 32), bytes([2] * 32)


class NoMemory:
    """Stands in for the disk: all is written as soon as it is so."""

    async def keep(self, federation):
        """There is nothing to write to."""
        return True

    async def write_results(self, run, results):
        """There is nothing to write to."""

    async def forget_results(self, federation):
        """There is nothing to forget."""


class Caller:
    """One client's calls, and its session, which stays open until it hangs up."""

    def __init__(self, service, client):
        self.service = service
        self.client = client
        self.incarnation = 0
        self.heard = asyncio.Queue()
        self._beats = asyncio.Queue()
        self._session = None

    async def register(self, **keys):
        request = pb.RegisterRequest(
            federation="churn",
            protocol_version=PROTOCOL_VERSION,
            client=self.client,
            **{
                "nonce": f"nonce-{self.client}",
                "address": f"{self.client}:1",
                "has_head": True,
                **keys,
            },
        )
        self.incarnation = (await self.service.Register(request, self)).incarnation

    def open(self, **keys):
        self._session = asyncio.create_task(self.service.Session(self._requests(), self))
        self.beat(**keys)
        return self._session

    def beat(self, state=pb.CLIENT_STATE_JOINING, **keys):
        self._beats.put_nowait(
            pb.Heartbeat(client=self.client, incarnation=self.incarnation, state=state, **keys)
        )

    async def hang_up(self):
        self._beats.put_nowait(None)
        await self._session

    async def hear(self, field):
        """Wait for a directive that has this phase, or this field of a gathering."""
        while True:
            directive = await self.heard.get()
            if field in ("call", "commitments"):
                call = directive.gathering.call
                if call.id and (field == "call" or call.commitments):
                    return call
            elif directive.HasField(field):
                return directive

    async def commit(self, alignment, num_points=1, sha256=bytes(32), num_known=0):
        request = self._message(pb.CommitRequest, alignment)
        request.num_points, request.sha256 = num_points, sha256
        request.num_known = num_known
        await self.service.Commit(request, self)

    async def submit(self, alignment, *pieces, table=pb.TABLE_SERVE, tables=b"\1"):
        """Submit points of people in some tables, or digests of one table."""
        numbers = tables if table == pb.TABLE_SERVE else b""
        await self.service.SubmitIds(self._ids(alignment, table, pieces or [POINT], numbers), self)

    async def take_part(self):
        """Do the whole part in the next alignment; return its id."""
        alignment = (await self.hear("call")).id
        await self.commit(alignment)
        await self.hear("commitments")
        await self.submit(alignment)
        return alignment

    async def fetch(self, alignment):
        fetched = Fetched()
        await self.service.FetchAlignment(
            self._message(pb.FetchAlignmentRequest, alignment), fetched
        )
        return fetched.messages

    async def refuse(self, alignment, peer, reason):
        message = self._message(pb.RefuseAlignmentRequest, alignment)
        message.peer, message.reason = peer, reason
        await self.service.RefuseAlignment(message, self)

    async def dry_run(self):
        request = pb.DryRunRequest(client=self.client, incarnation=self.incarnation)
        return await self.service.DryRun(request, self)

    async def write(self, directive):
        self.heard.put_nowait(directive)

    def _message(self, kind, alignment):
        return kind(client=self.client, incarnation=self.incarnation, alignment=alignment)

    async def _requests(self):
        while (beat := await self._beats.get()) is not None:
            yield beat

    async def _ids(self, alignment, table, pieces, numbers):
        first = self._message(pb.SubmitIdsRequest, alignment)
        first.table = table
        first.blinded = pieces[0]
        first.tables = numbers[:1]
        yield first
        if numbers[1:]:
            yield pb.SubmitIdsRequest(tables=numbers[1:])
        for piece in pieces[1:]:
            yield pb.SubmitIdsRequest(blinded=piece)


class Fetched:
    """What is written to a client that fetches its rows."""

    def __init__(self):
        self.messages = []

    async def write(self, message):
        self.messages.append(message)


def play_out(scene, *roster, memory=None, **keys):
    """Run a scene with a service and a caller for each client."""

    async def play():
        federation = Play(*roster, **keys).federation
        service = CoordinatorService("churn", SETTINGS, federation, memory or NoMemory())
        async with asyncio.timeout(10):
            await scene(service, *(Caller(service, name) for name in roster))

    asyncio.run(play())


async def called(*callers):
    """Let everybody come and want a run; return the call to its alignment."""
    for caller in callers:
        await caller.register(wants_run=True)
        caller.open(prepared=True)
    [call, *_] = await asyncio.gather(*(caller.hear("call") for caller in callers))
    return call
