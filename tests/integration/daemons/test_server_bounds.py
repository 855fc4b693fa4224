"""What a server gives a caller that has not said who it is, and one that sends too much."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from laser_vfl.v1 import peer_pb2 as pb

PROGRAM = Path(__file__).parent / "bounded_server.py"
METHOD = "/laser_vfl.v1.Peer/Exchange"
PATIENCE_S = 40.0

BEGINNING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""Of a connection as HTTP/2 has it, with empty settings."""

HEADERS, RST_STREAM, END_HEADERS = 1, 3, 4

SMALL = {"representation_dim": 4, "batch_size": 16, "epochs": 1}
WIDE = {"representation_dim": 1024, "batch_size": 1024, "epochs": 1}


class Served:
    """A server in a process of its own."""

    def __init__(self, **bounds: int) -> None:
        arguments = {f"grpc.{name}": value for name, value in bounds.items()}
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._heard()

    def expect(self, settings: dict[str, int]) -> None:
        """Have it take messages as these settings need them."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(settings)}\n")
        self.process.stdin.flush()
        assert self._heard() == self.address, "the port stays"

    def connect(self) -> socket.socket:
        """Open a connection that says nothing yet."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def close(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)

    def _heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Start a server with bounds that a test can wait for; it has to be one that all have."""
    with ExitStack() as stack:
        yield lambda **bounds: stack.enter_context(closing(Served(**bounds)))


def say(address: str, num_bytes: int, **how: Any) -> int | grpc.StatusCode:
    """Send a frame with so much in it; return how much arrived, or how the call ended."""
    frame = pb.Frame()
    frame.tensor.data = bytes(num_bytes)
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        call: Any = channel.stream_stream(METHOD, pb.Frame.SerializeToString, pb.Frame.FromString)
        try:
            return int(next(call(iter([frame]), timeout=PATIENCE_S, **how)).step)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
            return code


def closed_after_s(served: Served, beginning: bytes) -> float:
    """Connect, send no more than this, and return how long the server put up with it."""
    started = time.monotonic()
    with served.connect() as connection:
        connection.sendall(beginning)
        while connection.recv(1 << 16):
            pass
    return time.monotonic() - started


@pytest.mark.parametrize("beginning", [b"", b"PRI * HT"], ids=["silent", "half"])
def test_who_does_not_finish_its_greeting_is_hung_up_on(
    beginning: bytes, served: Callable[..., Served]
) -> None:
    server = served(server_handshake_timeout_ms=1_000)
    assert 0.5 < closed_after_s(server, beginning) < 5


def test_who_connects_and_asks_nothing_is_hung_up_on(served: Callable[..., Served]) -> None:
    server = served(max_connection_idle_ms=1_000)
    assert 0.5 < closed_after_s(server, BEGINNING) < 5


def test_connections_are_limited(served: Callable[..., Served]) -> None:
    server = served(max_allowed_incoming_connections=10)
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(15)]
        num_answered = 0
        for connection in connections:
            try:
                connection.sendall(BEGINNING)
                num_answered += bool(connection.recv(100))
            except ConnectionError:
                pass
        assert num_answered == 10


def test_streams_of_one_connection_are_limited(served: Callable[..., Served]) -> None:
    """A caller that does not heed the limit, which an honest one would wait for."""
    server = served(max_concurrent_streams=5)
    with server.connect() as connection:
        connection.sendall(BEGINNING)
        connection.sendall(b"".join(_opening(2 * number + 1) for number in range(7)))
        file, reset = connection.makefile("rb"), []
        while len(reset) < 2:
            header = file.read(9)
            file.read(int.from_bytes(header[:3], "big"))
            if header[3] == RST_STREAM:
                reset.append(int.from_bytes(header[5:], "big"))
        assert reset == [11, 13]


def test_metadata_is_limited(served: Callable[..., Served]) -> None:
    address = served().address
    assert say(address, 7, metadata=(("key", "x" * 15_000),)) == 7
    too_much = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert say(address, 7, metadata=(("key", "x" * 17_000),)) == too_much


def test_a_message_that_unpacks_to_hundreds_of_megabytes_is_not_unpacked(
    served: Callable[..., Served],
) -> None:
    server = served()
    assert say(server.address, 7, compression=grpc.Compression.Gzip) == 7
    process, found = psutil.Process(server.process.pid), []
    most = before = process.memory_info().rss
    bomb = threading.Thread(
        target=lambda: found.append(say(server.address, 1 << 28, compression=grpc.Compression.Gzip))
    )
    bomb.start()
    while bomb.is_alive():
        most = max(most, process.memory_info().rss)
        bomb.join(0.01)
    assert found == [grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert most < before + 50e6


def test_the_limit_follows_the_settings_and_the_port_stays(served: Callable[..., Served]) -> None:
    server, too_much = served(), grpc.StatusCode.RESOURCE_EXHAUSTED
    assert say(server.address, 1 << 20) == 1 << 20
    assert say(server.address, 4 << 20) == too_much
    server.expect(WIDE)
    assert say(server.address, 4 << 20) == 4 << 20
    assert say(server.address, 5 << 20) == too_much
    server.expect(SMALL)
    assert say(server.address, 4 << 20) == too_much


def test_the_same_limit_breaks_no_stream(served: Callable[..., Served]) -> None:
    server = served()
    server.expect(WIDE)
    asked = iter([pb.Frame(), pb.Frame()])

    def frames() -> Iterator[pb.Frame]:
        yield next(asked)
        server.expect({**WIDE, "epochs": 2})
        yield next(asked)

    with grpc.insecure_channel(server.address) as channel:
        call: Any = channel.stream_stream(METHOD, pb.Frame.SerializeToString, pb.Frame.FromString)
        assert [answer.step for answer in call(frames(), timeout=PATIENCE_S)] == [0, 0]


def _opening(stream: int) -> bytes:
    """Return the frame of HTTP/2 that a call begins with."""
    fields = (
        (b":path", METHOD.encode()),
        (b":authority", b"here"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
    block = b"\x83\x86"  # POST, http
    for name, value in fields:
        block += b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
    size = len(block).to_bytes(3, "big")
    return size + bytes([HEADERS, END_HEADERS]) + stream.to_bytes(4, "big") + block
