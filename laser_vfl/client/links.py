"""Streams to the other clients. Everything is pushed as soon as it is known; nothing answers.

A stream that breaks is opened again, and what may not have arrived is sent again.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc.aio

from laser_vfl.client.inbox import Inbox, Kind
from laser_vfl.client.link import Accuse, Changed, Link, Read, Write
from laser_vfl.client.pair_keys import PairKeys
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.core.errors import ContractError, LaserError
from laser_vfl.v1 import coordinator_pb2
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.access import identify
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.frames import open_exchange
from laser_vfl.wire.identity import client_of
from laser_vfl.wire.lines import Line
from laser_vfl.wire.patience import in_time
from laser_vfl.wire.peer_traffic import PeerTraffic
from laser_vfl.wire.sizes import Options
from laser_vfl.wire.status import error_from, heed_cancellation

log = logging.getLogger(__name__)

DIAL_TIMEOUT_S = 20.0
EARLY_S = 2.0
"""How much earlier than we a peer may know of a run or a view; after that it has to dial again."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 1.0


class Links:
    """All streams of one process in one run. Of each pair, the one first in the roster dials."""

    def __init__(
        self,
        run: str,
        me: Peer,
        roster: Sequence[str],
        credentials: Credentials,
        options: Options,
        changed: Changed = lambda: None,
        accuse: Accuse = lambda peer, reason: None,
        *,
        pair_keys: bool = False,
        traffic: PeerTraffic | None = None,
    ) -> None:
        self.run = run
        self.me = me
        self.roster = roster
        self.inbox = Inbox()
        self.keys = PairKeys(run, me) if pair_keys else None
        self.news = asyncio.Event()
        self._credentials = credentials
        self._options = options
        self._changed = changed
        self._accuse = accuse
        self._traffic = traffic or PeerTraffic()
        self._links: dict[int, Link] = {}
        self._retired: dict[int, Link] = {}
        self._by_index: dict[int, Link] = {}
        self._dials: dict[int, asyncio.Task[None]] = {}

    def meet(self, peers: Iterable[Peer]) -> None:
        """Have a stream to each of these, and to nobody else."""
        wanted = {peer.incarnation: peer for peer in peers}
        for incarnation, link in list(self._links.items()):
            if (peer := wanted.get(incarnation)) is None:
                self._retired[incarnation] = self._links.pop(incarnation)
                link.retire()
            elif peer.name != link.peer.name:
                raise ContractError("the coordinator gives a process the number of another")
        self._forget_closed()
        for incarnation, peer in wanted.items():
            if incarnation not in self._links:
                if before := self._retired.pop(incarnation, None):
                    before.closed.set()  # its caller opens a stream anew
                link = Link(peer, self.run, self.inbox, self._changed, self._accuse, self._traffic)
                self._links[incarnation] = link
                if peer.index > self.me.index:
                    self._dials[incarnation] = asyncio.create_task(self._keep_open(link))
        self.news.set()
        self.news = asyncio.Event()

    def _forget_closed(self) -> None:
        """Let go of processes that are long gone."""
        for incarnation in [i for i, link in self._retired.items() if link.closed.is_set()]:
            del self._retired[incarnation]
        for incarnation in [i for i, dial in self._dials.items() if dial.done()]:
            del self._dials[incarnation]

    def begin(self, view: MemberView) -> None:
        """Exchange frames of this view's generation from now on."""
        self._by_index = {peer.index: self._links[peer.incarnation] for peer in view.peers}
        for link in self._links.values():
            link.begin()
        self.inbox.begin(view.generation)

    def send(self, kind: Kind, frames: Iterable[tuple[int, bytes]]) -> None:
        """Queue serialised frames for their peers."""
        for peer, frame in frames:
            self._by_index[peer].send(kind, frame)

    def refuse(self, peer: int, reason: str) -> None:
        """Have no stream to a peer that broke the contract for as long as the generation lasts."""
        self._by_index[peer].refuse(reason)

    def are_up(self) -> dict[str, bool]:
        """Tell of each member whether there is a stream to it now."""
        return {link.peer.name: link.up for link in self._links.values()}

    def reports(self) -> list[coordinator_pb2.LinkReport]:
        """Say how each stream is."""
        return [link.report() for link in self._links.values()]

    async def close(self) -> None:
        """Close all streams."""
        for link in (*self._links.values(), *self._retired.values()):
            link.closed.set()
        dials = list(self._dials.values())
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)

    def find(self, hello: pb.Frame) -> Link | None:
        """Return the link that a caller's stream belongs to, if it is known here already."""
        if hello.incarnation in self._retired:
            self.inbox.dropped["earlier life"] += 1
            raise ContractError("the others go on without this process; it has to register anew")
        if hello.receiver != self.me.incarnation:
            raise ContractError("this is another process than the one that was called")
        if hello.sender not in self.roster:
            raise ContractError("only the members of the run exchange frames")
        link = self._links.get(hello.incarnation)
        if link is None or link.peer.name != hello.sender:
            return None
        link.check()
        return link

    def hello(self, receiver: Peer) -> bytes:
        """Return the frame that a stream begins with, in both directions."""
        frame = pb.Frame(
            run=self.run,
            kind=pb.FRAME_KIND_HELLO,
            sender=self.me.name,
            incarnation=self.me.incarnation,
            receiver=receiver.incarnation,
            public_key=self.keys.public if self.keys else b"",
        )
        return frame.SerializeToString()

    async def pump(self, link: Link, hello: pb.Frame, read: Read, write: Write) -> None:
        """Move frames over a stream whose other end has said hello, until it ends."""
        if self.keys is not None:
            self.keys.agree(link.peer, hello.public_key)
        await link.pump(read, write)

    async def _keep_open(self, link: Link) -> None:
        """Dial a peer again and again, for as long as it is wanted."""
        retry_s, complaint = FIRST_RETRY_S, ""
        while not link.is_retired:
            num_opened, error = link.num_opened, ""
            try:
                await self._dial(link)
            except grpc.aio.AioRpcError as failure:
                error = error_from(failure, doing="dialling").message
            except TimeoutError:
                error = "it does not answer"
            except LaserError as failure:
                error = str(failure)
            except asyncio.InvalidStateError:
                error = "the stream was cut"
            heed_cancellation()
            if link.num_opened > num_opened:
                retry_s, complaint = FIRST_RETRY_S, ""
            elif error and error != complaint:
                log.info("%s cannot be reached at %s: %s", link.peer.name, link.peer.address, error)
                complaint = error
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _dial(self, link: Link) -> None:
        to = client_of(self._credentials.federation, link.peer.name)
        line = Line(link.peer.address, self._credentials, to, self._options)
        try:
            call = open_exchange(line.channel)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await call.write(self.hello(link.peer))
                answer = await call.read()
            if answer is None or answer is grpc.aio.EOF or answer.kind != pb.FRAME_KIND_HELLO:
                raise ContractError(f"{link.peer.name} did not answer with a hello")
            if (answer.sender, answer.incarnation) != (link.peer.name, link.peer.incarnation):
                raise ContractError(f"somebody else answers at {link.peer.address}")
            with line.while_fresh(call):
                await self.pump(link, answer, call.read, call.write)
        finally:
            with suppress(Exception):
                await line.close()


class Reception:
    """Where peers' streams arrive, whatever run is under way."""

    def __init__(self) -> None:
        self._links: Links | None = None
        self._opened = asyncio.Event()

    def open(self, links: Links) -> None:
        """Let the members of a run in."""
        self._links = links
        self._opened.set()
        self._opened = asyncio.Event()

    def close(self) -> None:
        """The run is over; who comes now is early for the next one."""
        self._links = None

    async def serve(self, requests: Any, context: Any) -> None:
        """Take a stream in; its sender may know of the run, or of the view, before we do."""
        hello = await in_time(context.read())
        if hello is grpc.aio.EOF or hello.kind != pb.FRAME_KIND_HELLO:
            raise ContractError("a stream begins with a hello")
        identify(hello.sender)
        try:
            async with asyncio.timeout(EARLY_S):
                links, link = await self._expected(hello)
        except TimeoutError:
            raise ContractError("no such process is in the run under way here") from None
        await context.write(links.hello(link.peer))
        await links.pump(link, hello, context.read, context.write)

    async def _expected(self, hello: pb.Frame) -> tuple[Links, Link]:
        while True:
            opened, links = self._opened, self._links
            if links is None:
                await opened.wait()
                continue
            if links.run == hello.run and (link := links.find(hello)) is not None:
                return links, link
            waits = [asyncio.ensure_future(e.wait()) for e in (opened, links.news)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()


def tagged(view: MemberView, kind: Kind, step: int) -> pb.Frame:
    """Return a frame with everything but a tensor."""
    return pb.Frame(
        run=view.run,
        generation=view.generation,
        step=step,
        kind=kind,
        sender=view.me.name,
        incarnation=view.me.incarnation,
    )
