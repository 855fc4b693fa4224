"""Asks one peer for representations over one stream, and not while it fails."""

import asyncio
import contextlib
import logging
import time
from collections import deque

import grpc
import grpc.aio

from laser_vfl.client.answers import Answer, Named, Question, Subject, decoded, nothing
from laser_vfl.client.breaker import Breaker
from laser_vfl.core.errors import AddressError, ContractError
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.frames import bytes_read, open_represent
from laser_vfl.wire.identity import client_of
from laser_vfl.wire.lines import Line
from laser_vfl.wire.peer_traffic import PeerTraffic
from laser_vfl.wire.protocol import RECONNECT
from laser_vfl.wire.sizes import Options
from laser_vfl.wire.status import error_from, heed_cancellation, retry_after_s

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 1.0


class Asker:
    """The questions of this client to one peer, over one stream."""

    def __init__(
        self,
        peer: str,
        address: str,
        *,
        sender: str,
        credentials: Credentials,
        options: Options,
        traffic: PeerTraffic | None = None,
    ) -> None:
        self.peer = peer
        self._traffic = traffic or PeerTraffic()
        self.breaker = Breaker()
        self.num_wanted = self.num_available = 0
        self._sender = sender
        self._unanswered: deque[Question] = deque()
        self._stream: asyncio.Task[None] | None = None
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._limited_until = 0.0
        self._probing: asyncio.Task[None] | None = None
        self._options = options
        to = client_of(credentials.federation, peer)
        self._line = Line(address, credentials, to, [*options, *RECONNECT])

    @property
    def address(self) -> str:
        """Where the peer is asked."""
        return self._line.address

    def move(self, address: str) -> None:
        """The peer is somewhere else now."""
        if address != self.address:
            log.info("%s is at %s now", self.peer, address)
            self._open_anew(address, self._options, "it has moved")

    def expect(self, options: Options) -> None:
        """Questions are about another model from now on, whose answers have other sizes."""
        if options != self._options:
            self._open_anew(self.address, options, "there is another model now")

    def ask(self, subject: Subject, named: Named, give_up_at: float) -> "asyncio.Future[Answer]":
        """Ask about some samples. The future never fails; nobody has to wait for it."""
        loop = asyncio.get_running_loop()
        question = Question(subject, named, give_up_at, loop.create_future())
        if named.is_nobody:
            question.settle(nothing(""))
        elif self.breaker.is_open:
            question.settle(nothing(self.breaker.problem))
        else:
            self._send(question)
        return question.answer

    def gave_up(self, waited_s: float) -> None:
        """Somebody could not wait any longer; from some point on, nobody begins to any more.

        Who already waits and is more patient may still get an answer.
        """
        is_limited = time.monotonic() < self._limited_until  # then we asked too much
        if not self.breaker.is_open and not is_limited and self.breaker.kept_waiting(waited_s):
            self._stop_asking(f"no answer within {waited_s * 1e3:.0f} ms")
        now = time.monotonic()
        if self.breaker.is_open and all(q.give_up_at <= now for q in self._unanswered):
            self._end_stream(self.breaker.problem)

    def probe(self, *, at_once: bool = False) -> None:
        """Try in the background until the peer answers, and ask it again from then on."""
        if at_once and self._probing is not None:
            self._probing.cancel()
            self._probing = None
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(at_once=at_once))

    async def close(self) -> None:
        """Ask no more."""
        tasks = [task for task in (self._stream, self._probing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._line.close()

    def _open_anew(self, address: str, options: Options, why: str) -> None:
        self._options = options
        self._end_stream(why)
        self._line.reopen(address, [*options, *RECONNECT])
        self.probe(at_once=True)

    def _send(self, question: Question) -> None:
        sender = ""
        if self._line.is_stale and not self._unanswered:
            self._end_stream("our certificate has changed")
        if self._stream is None:
            sender = self._sender
            self._outbox = asyncio.Queue()
            self._stream = asyncio.create_task(self._converse(self._outbox))
        question.asked_at = time.monotonic()
        self._unanswered.append(question)
        self._outbox.put_nowait(question.request(sender).SerializeToString())

    async def _converse(self, outbox: "asyncio.Queue[bytes]") -> None:
        """Write questions and read answers until the stream ends, and take note of why it did."""
        call = open_represent(self._line.channel)
        writer = asyncio.create_task(self._write_all(call, outbox))
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._traffic.received(self.peer, "prediction", bytes_read())
                self._hear(response)
            await call.code()
            self._lost("it closed the connection")
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            self._refused(error)
        except ContractError as error:
            self._lost(f"it broke the contract: {error}")
        except Exception:
            log.exception("%s sent what cannot be read", self.peer)
            self._lost("it sent what cannot be read")
        finally:
            writer.cancel()
            call.cancel()

    async def _write_all(
        self,
        call: "grpc.aio.StreamStreamCall[bytes, pb.RepresentResponse]",
        outbox: "asyncio.Queue[bytes]",
    ) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:  # until the stream has ended, which its reader tells
                question = await outbox.get()
                await call.write(question)
                self._traffic.sent(self.peer, "prediction", len(question))

    def _hear(self, response: pb.RepresentResponse) -> None:
        if not self._unanswered:
            raise ContractError("an answer without a question")
        question = self._unanswered[0]
        answer = decoded(response, question.subject, question.named)
        self._unanswered.popleft()
        self.breaker.answered(time.monotonic() - question.asked_at)
        question.settle(answer)

    def _refused(self, error: grpc.aio.AioRpcError) -> None:
        """The stream failed. Who asked too much tries again as soon as it may, if there is time."""
        problem = _in_words(error, self.address)
        wait_s = retry_after_s(error)
        if wait_s is None:
            self._lost(problem)
            return
        self._stream = None
        self._limited_until = time.monotonic() + wait_s
        unanswered, self._unanswered = self._unanswered, deque()
        for question in unanswered:
            if question.give_up_at <= self._limited_until:
                question.settle(nothing(problem))
            else:
                asyncio.get_running_loop().call_later(wait_s, self._ask_again, question)

    def _ask_again(self, question: Question) -> None:
        if self.breaker.is_open:
            question.settle(nothing(self.breaker.problem))
        else:
            self._send(question)

    def _lost(self, problem: str) -> None:
        self._stream = None
        self._end_stream(problem)
        self._stop_asking(problem)

    def _stop_asking(self, problem: str) -> None:
        log.warning("%s is not asked for now: %s", self.peer, problem)
        self.breaker.failed(problem)
        self.probe()

    def _end_stream(self, problem: str) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        for question in self._unanswered:
            question.settle(nothing(problem))
        self._unanswered.clear()

    async def _probe(self, *, at_once: bool) -> None:
        while True:
            if not at_once:
                await asyncio.sleep(self.breaker.next_probe_s())
            at_once = False
            problem = await self._try()
            if problem:
                if not self.breaker.is_open:
                    log.warning("%s is not asked for now: %s", self.peer, problem)
                self.breaker.failed(problem)
                continue
            if self.breaker.is_open:
                log.info("%s answers again", self.peer)
            self.breaker.is_well()
            return

    async def _try(self) -> str:
        """Ask the peer about nothing; return what is wrong with it."""
        call = open_represent(self._line.channel)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                probe = pb.RepresentRequest(sender=self._sender).SerializeToString()
                await call.write(probe)
                self._traffic.sent(self.peer, "prediction", len(probe))
                if await call.read() is grpc.aio.EOF:
                    await call.code()
                    return "it closed the connection"
                self._traffic.received(self.peer, "prediction", bytes_read())
                return ""
        except TimeoutError:
            return f"no answer within {PROBE_TIMEOUT_S * 1e3:.0f} ms"
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            return "" if retry_after_s(error) else _in_words(error, self.address)
        except asyncio.InvalidStateError:
            return "it closed the connection"
        finally:
            call.cancel()


def _in_words(error: grpc.aio.AioRpcError, address: str) -> str:
    """Say why a peer did not answer, without what gRPC makes of it where that says no more."""
    found = error_from(error, doing="out of reach")
    if isinstance(found, AddressError):
        return f"out of reach at {address}"
    return found.message
