"""What a bare TCP connection through a slow line shows of it: its round trip and its bandwidth."""

import socket
import statistics
import threading
import time
from contextlib import closing, suppress

from laser_vfl.bench.proxy import Proxy
from laser_vfl.planning.clocks import NetworkLine

NUM_PINGS = 15
TRANSFER_S = 0.5
"""How long the line should be busy with what is sent to time it."""
READ_BYTES = 1 << 16
TIMEOUT_S = 60.0


def slow_line(proxy: Proxy, line: NetworkLine) -> None:
    """Have a proxy be such a line, half of the round trip each way."""
    proxy.delay(line.rtt_s / 2)
    proxy.throttle(line.bytes_per_s)


def probe(line: NetworkLine) -> NetworkLine:
    """Return the round trip and the bandwidth of a proxy that should be this line."""
    num_bytes = max(1, round(TRANSFER_S * line.bytes_per_s))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=_answer, args=(listener, num_bytes), daemon=True)
        thread.start()
        with Proxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy:
            slow_line(proxy, line)
            host, _, port = proxy.address.rpartition(":")
            with socket.create_connection((host, int(port)), TIMEOUT_S) as caller:
                caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                rtt_s = statistics.median(_ping(caller) for _ in range(NUM_PINGS))
                started = time.perf_counter()
                caller.sendall(bytes(num_bytes))
                _read(caller, 1)
                seconds = time.perf_counter() - started
        thread.join(TIMEOUT_S)
    return NetworkLine(num_bytes / max(seconds - rtt_s, 1e-9), rtt_s)


def _ping(caller: socket.socket) -> float:
    started = time.perf_counter()
    caller.sendall(b".")
    _read(caller, 1)
    return time.perf_counter() - started


def _answer(listener: socket.socket, num_bytes: int) -> None:
    """Send back each ping, and one byte for all that comes after them."""
    with suppress(OSError):
        caller, _ = listener.accept()
        with caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(NUM_PINGS):
                _read(caller, 1)
                caller.sendall(b".")
            _read(caller, num_bytes)
            caller.sendall(b".")


def _read(one: socket.socket, num_bytes: int) -> None:
    while num_bytes:
        data = one.recv(min(num_bytes, READ_BYTES))
        if not data:
            raise ConnectionError("the connection has ended")
        num_bytes -= len(data)
