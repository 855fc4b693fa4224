"""Asks one peer for representations over one stream, at the pace it allows, while it answers."""

import asyncio
import contextlib
import logging
import time
from collections import deque

import grpc
import grpc.aio

from laser_vfl.client.serving.breaker import Breaker
from laser_vfl.client.serving.pacer import Pacer
from laser_vfl.client.serving.peer_answers import (
    Answer,
    Named,
    Question,
    SentQuestion,
    Subject,
    nothing,
)
from laser_vfl.core.errors import AddressError, ContractError
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import client_of
from laser_vfl.transport.frames import bytes_read, open_represent
from laser_vfl.transport.grpc_status import (
    error_from,
    heed_cancellation,
    is_ours,
    retry_after_s,
)
from laser_vfl.transport.message_limits import Options
from laser_vfl.transport.protocol import RECONNECT
from laser_vfl.transport.reloading_channel import ReloadingChannel
from laser_vfl.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 1.0

LATE = "no answer in time"


class PeerClient:
    """The questions of this client to one peer, over one stream.

    Questions are sent as they come. When the peer refuses because they are too many, they wait in
    a queue until it takes more, and those that have waited go together.
    """

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
        """Samples whose block was wanted, and those of them for which it came."""
        self.num_limited = 0
        """How often the peer refused because it was asked too much."""
        self._sender = sender
        self._waiting: deque[Question] = deque()
        """Not sent yet; empty unless the peer limits us."""
        self._unanswered: deque[SentQuestion] = deque()
        self._pacer = Pacer()
        self._limit_problem = ""
        self._turn: asyncio.TimerHandle | None = None
        self._asks_singly = False
        """Whether a question is sent only when the one before is answered."""
        self._stream: asyncio.Task[None] | None = None
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._probing: asyncio.Task[None] | None = None
        self._options = options
        to = client_of(credentials.federation, peer)
        self._channel = ReloadingChannel(address, credentials, to, [*options, *RECONNECT])

    @property
    def address(self) -> str:
        """Where the peer is asked."""
        return self._channel.address

    def move(self, address: str) -> None:
        """The peer is somewhere else now."""
        if address != self.address:
            log.info("%s is at %s now", self.peer, address)
            self._open_anew(address, self._options, "it has moved")

    def expect(self, options: Options) -> None:
        """Questions are about another model from now on, whose answers have other sizes."""
        if options != self._options:
            self._open_anew(self.address, options, "there is another model now")

    def ask(self, subject: Subject, named: Named, give_up_at: float) -> Question:
        """Ask about some samples. Its answer never fails; nobody has to wait for it."""
        loop = asyncio.get_running_loop()
        question = Question(subject, named, give_up_at, loop.create_future())
        if named.is_nobody:
            question.settle(nothing(""))
        elif self.breaker.is_open:
            question.settle(nothing(self.breaker.problem, is_up=False))
        elif self._is_unlimited:
            self._send(SentQuestion([question], time.monotonic()))
        else:
            self._waiting.append(question)
            self._send_waiting()
        return question

    def give_up(self, question: Question) -> Answer:
        """Return what a caller gets that cannot wait for the answer any longer.

        A peer that lets too many callers wait is not asked any more. One that has not been sent
        the question is not to blame. Who already waits and is more patient may still be answered.
        """
        if question.answer.done():
            return question.answer.result()
        sent = question.sent
        if sent is None:
            return nothing(self._limit_problem or LATE)
        now = time.monotonic()
        waited_s = now - sent.asked_at
        is_counted = not sent.missed()
        if not self.breaker.is_open and self.breaker.kept_waiting(waited_s, is_counted=is_counted):
            self._stop_asking(f"no answer within {waited_s * 1e3:.0f} ms")
        if self.breaker.is_open and all(s.give_up_at <= now for s in self._unanswered):
            self._end_stream(self.breaker.problem)
        return nothing(LATE, is_up=not self.breaker.is_open)

    def count(self, num_wanted: int, num_available: int) -> None:
        """Count the samples of a prediction that this peer's block was wanted for."""
        self.num_wanted += num_wanted
        self.num_available += num_available

    def probe(self, *, at_once: bool = False) -> None:
        """Try in the background until the peer answers, and ask it again from then on."""
        if at_once and self._probing is not None:
            self._probing.cancel()
            self._probing = None
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(at_once=at_once))

    async def close(self) -> None:
        """Ask no more."""
        if self._turn is not None:
            self._turn.cancel()
        tasks = [task for task in (self._stream, self._probing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()

    def _open_anew(self, address: str, options: Options, why: str) -> None:
        self._options = options
        self._end_stream(why)
        self._channel.reopen(address, [*options, *RECONNECT])
        self.probe(at_once=True)

    @property
    def _is_unlimited(self) -> bool:
        """Whether questions are sent as they come: the peer has not refused any of late."""
        return not (self._waiting or self._asks_singly or self._pacer.is_limited)

    def _send_waiting(self) -> None:
        """Send what may be sent now, and be back when more may be."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        is_single = self._asks_singly or self._pacer.is_learning
        while self._waiting and not (is_single and self._unanswered):
            now = time.monotonic()
            wait_s = self._pacer.wait_s(now)
            self._drop_late(now + wait_s)
            if self._waiting and wait_s > 0:
                loop = asyncio.get_running_loop()
                self._turn = loop.call_later(wait_s, self._send_waiting)
                return
            if self._waiting:
                self._send(self._take(now))

    def _drop_late(self, next_at: float) -> None:
        """Give up on questions for which nobody waits until the next one may be sent."""
        if any(question.give_up_at <= next_at for question in self._waiting):
            for question in self._waiting:
                if question.give_up_at <= next_at:
                    question.settle(nothing(self._limit_problem or LATE))
            self._waiting = deque(q for q in self._waiting if q.give_up_at > next_at)

    def _take(self, now: float) -> SentQuestion:
        """Take the first question and those that can go with it."""
        first = self._waiting.popleft()
        taken, num_samples = [first], first.named.num
        while self._waiting and first.goes_with(self._waiting[0]):
            num_samples += self._waiting[0].named.num
            if num_samples > first.subject.max_rows:
                break
            taken.append(self._waiting.popleft())
        return SentQuestion(taken, now)

    def _send(self, question: SentQuestion) -> None:
        sender = ""
        if self._channel.is_stale and not self._unanswered:
            self._end_stream("our certificate has changed")
        if self._stream is None:
            sender = self._sender
            self._outbox = asyncio.Queue()
            self._stream = asyncio.create_task(self._converse(self._outbox))
        self._unanswered.append(question)
        self._pacer.sent(question.num_samples)
        self._outbox.put_nowait(question.request(sender).SerializeToString())

    async def _converse(self, outbox: "asyncio.Queue[bytes]") -> None:
        """Write questions and read answers until the stream ends, and take note of why it did."""
        call = open_represent(self._channel.channel)
        writer = asyncio.create_task(self._write_all(call, outbox))
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._traffic.received(self.peer, "prediction", bytes_read())
                self._hear(response)
            await call.code()
            self._lost("it closed the connection")
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            self._failed(error)
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
        question.hear(response)
        self._unanswered.popleft()
        self.breaker.answered(time.monotonic() - question.asked_at)
        self._asks_singly = False
        if self._waiting:
            self._send_waiting()

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        """The stream failed. What was asked too fast is asked again when the peer allows it."""
        wait_s = retry_after_s(error)
        problem = _in_words(error, self.address)
        if wait_s is not None:
            self.num_limited += 1
            self._limit_problem = problem
            num_unanswered = sum(sent.num_samples for sent in self._unanswered)
            self._pacer.refused(num_unanswered, wait_s, time.monotonic())
            self._ask_again()
        elif _hides_reason(error) and not self._asks_singly:
            self._asks_singly = True
            self._ask_again()
        else:
            self._lost(problem)

    def _ask_again(self) -> None:
        """Put what was not answered back in front of the queue."""
        self._stream = None
        for sent in reversed(self._unanswered):
            for question in reversed(sent.questions):
                question.wait_again()
                self._waiting.appendleft(question)
        self._unanswered.clear()
        self._send_waiting()

    def _lost(self, problem: str) -> None:
        self._stream = None
        self._end_stream(problem)
        self._stop_asking(problem)

    def _stop_asking(self, problem: str) -> None:
        log.warning("%s is not asked for now: %s", self.peer, problem)
        self.breaker.failed(problem)
        for question in self._waiting:
            question.settle(nothing(problem, is_up=False))
        self._waiting.clear()
        self._asks_singly = False
        self.probe()

    def _end_stream(self, problem: str) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        for sent in self._unanswered:
            sent.settle(nothing(problem, is_up=False))
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
        call = open_represent(self._channel.channel)
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


def _hides_reason(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether the reason why a stream ended was lost.

    When a peer ends a stream while a message to it is being written, gRPC may report that the
    write failed, as INTERNAL, in place of the status that the peer sent. The peer gives its reason
    again when it is asked again, one question at a time.
    """
    return error.code() is grpc.StatusCode.INTERNAL and not is_ours(error)


def _in_words(error: grpc.aio.AioRpcError, address: str) -> str:
    """Say why a peer did not answer, without what gRPC makes of it where that says no more."""
    found = error_from(error, doing="out of reach")
    if isinstance(found, AddressError):
        return f"out of reach at {address}"
    return found.message
