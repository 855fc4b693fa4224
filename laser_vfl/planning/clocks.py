"""Simulated time: a clock for each client, which computes, sends and waits for frames."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Message:
    """A frame between clients, with its bytes as tensor, over TCP, and with all headers."""

    sender: int
    receiver: int
    payload_bytes: int
    tcp_bytes: int
    link_bytes: int


@dataclass(frozen=True)
class Round:
    """Clients compute, then send; a receiver goes on when all of its frames have arrived.

    `work` is the share of a step's computing that each client does before it sends.
    """

    work: Mapping[int, float]
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class NetworkLine:
    """The connection of every client, with the same bandwidth in each direction."""

    bytes_per_s: float = inf
    rtt_s: float = 0.0


class Clocks:
    """One clock for each client. Steps without a common client run at the same time."""

    def __init__(
        self, num_clients: int, line: NetworkLine, *, compute_s: float = 0.0, frame_s: float = 0.0
    ) -> None:
        self._line = line
        self._compute_s = compute_s
        self._frame_s = frame_s
        self._now = [0.0] * num_clients
        self._up_from = [0.0] * num_clients
        self._down_from = [0.0] * num_clients

    @property
    def seconds(self) -> float:
        """The time of the last client."""
        return max(self._now)

    def advance(self, rounds: Iterable[Round]) -> None:
        """Simulate one step."""
        for one in rounds:
            self._advance(one)

    def _advance(self, one: Round) -> None:
        for client, share in one.work.items():
            self._now[client] += share * self._compute_s
        sent: dict[int, list[Message]] = {}
        received: dict[int, list[Message]] = {}
        for message in one.messages:
            sent.setdefault(message.sender, []).append(message)
            received.setdefault(message.receiver, []).append(message)
        begins, ends = {}, {}
        for client, messages in sent.items():
            self._now[client] += len(messages) * self._frame_s
            begins[client] = max(self._now[client], self._up_from[client])
            ends[client] = begins[client] + self._transfer_s(messages)
            self._up_from[client] = ends[client]
        for client, messages in received.items():
            way_s = self._line.rtt_s / 2
            senders = {message.sender for message in messages}
            first = max(min(begins[s] for s in senders) + way_s, self._down_from[client])
            there = max(first + self._transfer_s(messages), max(ends[s] for s in senders) + way_s)
            self._down_from[client] = there
            there += len(messages) * self._frame_s
            self._now[client] = max(self._now[client], there)

    def _transfer_s(self, messages: Iterable[Message]) -> float:
        return sum(message.link_bytes for message in messages) / self._line.bytes_per_s
