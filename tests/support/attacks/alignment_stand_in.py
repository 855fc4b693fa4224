"""A member of the federation that follows the protocol of alignments, except where it is told."""

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from laser_vfl.client.alignment.curve import TABLE
from laser_vfl.data import POINT_BYTES, hash_to_curve, multiply, new_scalar
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as ppb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerServicer, PeerStub, add_PeerServicer_to_server
from tests.support.daemons.harness import Site, eventually

WAIT_S = 60.0

Points = bytes


def _same(points: Points) -> Points:
    return points


@dataclass(frozen=True)
class Trick:
    """Where it leaves the protocol; by default nowhere. It trains with all of its people."""

    listed: Callable[[Points], Points] = _same
    """What it commits to, made of its honest list."""
    committed: Callable[[cpb.CommitRequest], object] = lambda request: None
    sent: Callable[[Points], Points] = _same
    """What it sends of its own list, made of what it has committed to."""
    passed_on: Callable[[str, Points], Points | None] = lambda owner, points: points
    """What it passes on of another's list, made of what it should; None for nothing at all."""
    submitted: Callable[[Points], Points] = _same
    is_cut: bool = False
    """Whether it hangs up in the middle of its own list."""
    times: int = 1
    """How often it sends its own list."""


HONEST = Trick()


class StandIn(PeerServicer):
    """A client without a daemon: it registers, is called, and plays its part."""

    def __init__(
        self, site: Site, name: str, ids: list[str], trick: Trick = HONEST, address: str = ""
    ) -> None:
        """`address` is where it says that it is, if not where it is."""
        assert site.authority is not None
        self.trick = trick
        self.refusals: list[grpc.RpcError] = []
        """How calls ended that were not accepted."""
        self.outcomes: list[str] = []
        """The alignments of which it has its part of the outcome."""
        self._site = site
        self._name = name
        self._ids = ids
        self._nonce = f"{time.monotonic_ns():x}"
        files = {k: Path(p).read_bytes() for k, p in site.authority.issue(name).items()}
        self._channels: dict[str, grpc.Channel] = {}
        self._threads = ThreadPoolExecutor(32)
        self._server = grpc.server(self._threads)
        add_PeerServicer_to_server(self, self._server)
        own = grpc.ssl_server_credentials(
            [(files["key"], files["cert"])], files["ca"], require_client_auth=True
        )
        port = self._server.add_secure_port("127.0.0.1:0", own)
        self._address = address or f"127.0.0.1:{port}"
        self._server.start()
        self._calls: dict[str, _Part] = {}
        self._farewell: queue.Queue[bool] = queue.Queue()
        self.verdict = ""

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(self, *_: object) -> None:
        self._farewell.put(False)
        self._server.stop(0).wait()
        for channel in self._channels.values():
            channel.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def register(self) -> None:
        """Come to the federation, or come anew."""
        request = cpb.RegisterRequest(
            federation=self._site.federation,
            protocol_version=PROTOCOL_VERSION,
            client=self._name,
            nonce=self._nonce,
            address=self._address,
            release="stand-in",
        )
        self._farewell.put(False)
        self._farewell = queue.Queue()
        self.verdict = ""
        self.coordinator = CoordinatorStub(self.channel(self._site.address, "coordinator"))
        self.incarnation = self.coordinator.Register(request, timeout=WAIT_S).incarnation
        is_there = threading.Event()
        heard = self.coordinator.Session(self._heartbeats(self._farewell))
        threading.Thread(target=self._hear, args=(heard, is_there), daemon=True).start()
        assert is_there.wait(WAIT_S)

    def leave(self) -> None:
        """Say that it goes; it may come anew."""
        self._farewell.put(True)

    def channel(self, address: str, to: str) -> grpc.Channel:
        assert self._site.authority is not None
        if address not in self._channels:
            self._channels[address] = self._site.authority.channel(address, to, self._name)
        return self._channels[address]

    def wait_for_verdict(self) -> str:
        return eventually(lambda: self.verdict, f"{self._name} is told how it ended")

    def HandOn(self, requests: Iterator[ppb.HandOnRequest], context: Any) -> ppb.HandOnResponse:
        first = next(requests)
        points = b"".join(request.points for request in requests)
        part = eventually(lambda: self._calls.get(first.alignment), "the call", WAIT_S)
        part.take(first.owner, points)
        return ppb.HandOnResponse(num_points=len(points) // POINT_BYTES)

    def _heartbeats(self, farewell: "queue.Queue[bool]") -> Iterator[cpb.Heartbeat]:
        while True:
            yield cpb.Heartbeat(
                client=self._name,
                incarnation=self.incarnation,
                state=cpb.CLIENT_STATE_JOINING,
                prepared=True,
            )
            with suppress(queue.Empty):
                if farewell.get(timeout=0.5):
                    gone = cpb.CLIENT_STATE_GONE
                    yield cpb.Heartbeat(client=self._name, incarnation=self.incarnation, state=gone)
                return

    def _hear(self, directives: Any, is_there: threading.Event) -> None:
        with suppress(grpc.RpcError, ValueError):
            for directive in directives:
                is_there.set()
                call = directive.gathering.call
                if directive.HasField("stopped"):
                    self.verdict = directive.stopped.reason
                if call.id and call.id not in self._calls:
                    self._calls[call.id] = _Part(self, call, self._name, self._ids)
                if call.commitments:
                    self._calls[call.id].depart()


class _Part:
    """Its part in one alignment."""

    def __init__(
        self, stand_in: StandIn, call: cpb.AlignmentCall, name: str, ids: list[str]
    ) -> None:
        self._stand_in = stand_in
        self._trick = stand_in.trick
        self._call = call
        self._name = name
        self._scalar = new_scalar()
        names = [member.client for member in call.members]
        self._next = call.members[(names.index(name) + 1) % len(names)]
        self._list = self._blinded(ids)
        self._has_departed = False
        self._guarded(self._commit)

    def depart(self) -> None:
        """Send the own list, once everybody has committed."""
        if not self._has_departed:
            self._has_departed = True
            self._guarded(self._send_own)

    def take(self, owner: str, points: Points) -> None:
        """Pass on what has come, or submit it when it is the own list."""
        if owner == self._name:
            self._guarded(self._submit, points)
            return
        passed = self._trick.passed_on(owner, multiply(points, self._scalar))
        if passed is not None:
            self._send(owner, passed)

    def _blinded(self, ids: list[str]) -> Points:
        federation = self._stand_in._site.federation
        points = hash_to_curve(ids, federation=federation, run=self._call.run, table=TABLE)
        return self._trick.listed(multiply(points, self._scalar))

    def _commit(self) -> None:
        request = cpb.CommitRequest(
            client=self._name,
            incarnation=self._stand_in.incarnation,
            alignment=self._call.id,
            num_points=len(self._list) // POINT_BYTES,
            sha256=hashlib.sha256(self._list).digest(),
        )
        self._trick.committed(request)
        self._stand_in.coordinator.Commit(request, timeout=WAIT_S)

    def _send_own(self) -> None:
        for _ in range(self._trick.times):
            sent = self._trick.sent(self._list)
            self._send(self._name, sent, is_cut=self._trick.is_cut)

    def _send(self, owner: str, points: Points, *, is_cut: bool = False) -> None:
        half = len(points) // POINT_BYTES // 2 * POINT_BYTES
        is_written = threading.Event()

        def requests() -> Iterator[ppb.HandOnRequest]:
            yield ppb.HandOnRequest(
                alignment=self._call.id,
                sender=self._name,
                incarnation=self._stand_in.incarnation,
                owner=owner,
            )
            for part in filter(None, (points[:half], points[half:])):
                yield ppb.HandOnRequest(points=part)
                if is_cut:
                    is_written.set()
                    time.sleep(WAIT_S)

        stub = PeerStub(self._stand_in.channel(self._next.address, self._next.client))
        if not is_cut:
            stub.HandOn(requests(), timeout=WAIT_S)
            return
        call = stub.HandOn.future(requests())
        assert is_written.wait(WAIT_S)
        time.sleep(0.2)  # for the half to arrive
        call.cancel()

    def _submit(self, points: Points) -> None:
        blinded = self._trick.submitted(points)
        in_train = bytes([cpb.TABLE_TRAIN]) * (len(blinded) // POINT_BYTES)
        requests = [
            cpb.SubmitIdsRequest(
                client=self._name,
                incarnation=self._stand_in.incarnation,
                alignment=self._call.id,
                table=cpb.TABLE_SERVE,
            ),
            cpb.SubmitIdsRequest(blinded=blinded, tables=in_train),
        ]
        self._stand_in.coordinator.SubmitIds(iter(requests), timeout=WAIT_S)
        fetch = cpb.FetchAlignmentRequest(
            client=self._name, incarnation=self._stand_in.incarnation, alignment=self._call.id
        )
        list(self._stand_in.coordinator.FetchAlignment(fetch, timeout=WAIT_S))
        self._stand_in.outcomes.append(self._call.id)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Work in a thread, and keep what it was told."""

        def run() -> None:
            try:
                work(*arguments)
            except grpc.RpcError as error:
                self._stand_in.refusals.append(error)

        threading.Thread(target=run, daemon=True).start()
