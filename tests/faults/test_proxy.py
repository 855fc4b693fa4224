"""The proxy of fault tests does what it says, on plain sockets."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from laser_vfl.bench.line_probe import probe
from laser_vfl.bench.proxy import Proxy
from laser_vfl.planning.clocks import NetworkLine

SOON_S = 5.0
"""More than anything here takes."""
NEVER_S = 0.15
"""How long nothing must come."""


class Echo:
    """A server that sends back all it receives, and knows how its connections ended."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_taken = 0
        self.num_ended = 0
        self.num_reset = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self.num_taken += 1
                threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        with one:
            try:
                while data := one.recv(1 << 16):
                    one.sendall(data)
                self.num_ended += 1
            except OSError:
                self.num_reset += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as proxy:
        yield proxy


def _connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), SOON_S)


def _receive(one: socket.socket, num: int) -> bytes:
    found = bytearray()
    while len(found) < num and (data := one.recv(num - len(found))):
        found += data
    return bytes(found)


def _ask(one: socket.socket, data: bytes) -> bytes:
    one.sendall(data)
    return _receive(one, len(data))


def _hears_nothing(one: socket.socket) -> bool:
    one.settimeout(NEVER_S)
    try:
        one.recv(1)
        return False
    except TimeoutError:
        return True
    finally:
        one.settimeout(SOON_S)


def _wait(wanted: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SOON_S
    while not wanted():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def test_it_hands_on_what_it_gets_and_counts(proxy: Proxy, echo: Echo) -> None:
    sent = bytes(range(256)) * 4000
    with _connect(proxy) as one, _connect(proxy) as other:
        threading.Thread(target=one.sendall, args=(sent,), daemon=True).start()
        assert _receive(one, len(sent)) == sent
        assert _ask(other, b"hello") == b"hello"
    assert proxy.num_connections == echo.num_taken == 2
    _wait(lambda: echo.num_ended == 2)
    assert proxy.num_bytes == 2 * (len(sent) + 5)
    assert proxy.num_bytes_lost == proxy.num_cut == echo.num_reset == 0
    assert proxy.delayed_s < 0.001


def test_half_of_a_connection_may_end_first(proxy: Proxy) -> None:
    with _connect(proxy) as one:
        one.sendall(b"the last")
        one.shutdown(socket.SHUT_WR)
        assert _receive(one, 100) == b"the last"


def test_a_target_that_is_not_there(echo: Echo) -> None:
    echo.close()
    for target in (echo.address, ""):
        with Proxy(target) as proxy:
            with pytest.raises(ConnectionResetError), _connect(proxy) as one:
                one.recv(1)
            assert proxy.num_connections == 1


def test_a_target_may_be_named_later(echo: Echo) -> None:
    with Proxy() as proxy:
        proxy.target = echo.address
        with _connect(proxy) as one:
            assert _ask(one, b"hello") == b"hello"


def test_a_delay_is_of_each_way_and_keeps_the_order(proxy: Proxy) -> None:
    proxy.delay(0.05, jitter=0.05, seed=4)
    sent = [bytes([i]) * 10 for i in range(30)]
    with _connect(proxy) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for part in sent:
            one.sendall(part)
            time.sleep(0.001)
        took = time.monotonic() - began
        assert _receive(one, 300) == b"".join(sent)
        elapsed = time.monotonic() - began
    assert elapsed >= 0.1
    assert proxy.delayed_s >= 0.1
    assert elapsed < took + 1.0, "parts are to be under way at the same time"


def test_what_is_delayed_arrives_at_once_when_healed(proxy: Proxy) -> None:
    proxy.delay(60.0)
    with _connect(proxy) as one:
        one.sendall(b"hello")
        assert _hears_nothing(one)
        assert proxy.num_bytes == 0
        proxy.heal()
        assert _receive(one, 5) == b"hello"
    assert proxy.num_cut == 0


def test_a_throttle(proxy: Proxy) -> None:
    proxy.throttle(100_000)
    with _connect(proxy) as one:
        began = time.monotonic()
        assert len(_ask(one, bytes(20_000))) == 20_000
        assert 0.19 <= time.monotonic() - began < 1.5
        proxy.throttle(10)
        one.sendall(bytes(20_000))
        assert _receive(one, 1)
        proxy.heal()
        assert len(_receive(one, 19_999)) == 19_999


def test_a_black_hole_swallows_and_hangs(proxy: Proxy, echo: Echo) -> None:
    with _connect(proxy) as one, _connect(proxy) as ending:
        assert _ask(one, b"before") == b"before"
        assert _ask(ending, b"before") == b"before"
        proxy.black_hole()
        one.sendall(b"lost")
        ending.close()
        with _connect(proxy) as new:
            new.sendall(b"lost")
            _wait(lambda: proxy.num_bytes_lost == 8)
            assert _hears_nothing(one)
            assert _hears_nothing(new)
            assert (echo.num_taken, echo.num_ended, echo.num_reset) == (2, 0, 0)
            assert proxy.num_connections == 3
            proxy.heal()
            for stale in (one, new):
                with pytest.raises(ConnectionResetError):
                    stale.recv(1)
    _wait(lambda: echo.num_reset == 2)
    assert proxy.num_cut == 3
    with _connect(proxy) as one:
        assert _ask(one, b"after") == b"after"


def test_a_black_hole_swallows_what_is_under_way(proxy: Proxy) -> None:
    proxy.delay(60.0)
    with _connect(proxy) as one:
        one.sendall(b"lost")
        time.sleep(0.02)
        proxy.black_hole()
        assert _hears_nothing(one)
    assert proxy.num_bytes == 0
    assert proxy.num_bytes_lost == 4


def test_a_cut_resets_and_refuses(proxy: Proxy, echo: Echo) -> None:
    address = proxy.address
    with _connect(proxy) as one:
        assert _ask(one, b"before") == b"before"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    _wait(lambda: echo.num_reset == 1)
    assert proxy.num_cut == 1
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy)
    proxy.cut()
    proxy.heal()
    assert proxy.address == address
    with _connect(proxy) as one:
        assert _ask(one, b"after") == b"after"
    assert proxy.num_connections == 2


def test_a_cut_while_much_is_under_way_both_ways(proxy: Proxy) -> None:
    proxy.throttle(1000)
    with _connect(proxy) as one:
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                one.send(bytes(1 << 16))
        _wait(lambda: proxy.num_bytes > 0)
        proxy.cut()
        one.settimeout(SOON_S)
        with pytest.raises(ConnectionError):
            _receive(one, 1 << 30)


def test_a_port_of_ones_own_and_nothing_left(echo: Echo) -> None:
    with Proxy(echo.address) as first:
        port = int(first.address.rpartition(":")[2])
        one = _connect(first)
    with one, pytest.raises(ConnectionResetError):
        one.recv(1)
    with Proxy(echo.address, port) as again, _connect(again) as one:
        assert again.address == first.address
        assert _ask(one, b"hello") == b"hello"
    assert not [thread for thread in threading.enumerate() if thread.name == "proxy"]


def test_a_slow_line_is_never_faster_than_it_should_be() -> None:
    line = NetworkLine(bytes_per_s=2e6, rtt_s=0.04)
    found = probe(line)
    assert found.rtt_s >= line.rtt_s
    assert found.bytes_per_s <= 1.05 * line.bytes_per_s
