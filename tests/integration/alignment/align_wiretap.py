"""A TCP proxy that records all that passes, and can hold it up; and HTTP/2 as far as it takes."""

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CHUNK = 1 << 16


class Tap:
    """Listens in front of a daemon. It may be told later where that is."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.is_open = threading.Event()
        """While it is clear, connections are taken and nothing passes."""
        self.is_open.set()
        self.held = threading.Event()
        """Set when something has been held up."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._to: list[bytearray] = []
        self._from: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open.set()
        with self._lock:
            self._is_over = True
            for one in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    @property
    def sent_to(self) -> list[bytes]:
        """What the daemon has received, by connection."""
        return [bytes(part) for part in self._to]

    @property
    def sent_from(self) -> list[bytes]:
        """What the daemon has answered, by connection."""
        return [bytes(part) for part in self._from]

    def messages_to(self) -> Iterator[list[bytes]]:
        """The messages that the daemon has received, by call."""
        for part in self.sent_to:
            assert part.startswith(PREFACE)
            yield from messages_by_stream(part[len(PREFACE) :])

    def messages_from(self) -> Iterator[list[bytes]]:
        """The messages that the daemon has answered with, by call."""
        for part in self.sent_from:
            yield from messages_by_stream(part)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(caller,), daemon=True).start()

    def _connect(self, caller: socket.socket) -> None:
        if not self.is_open.is_set():
            self.held.set()
        self.is_open.wait()
        host, _, port = self.target.rpartition(":")
        try:
            daemon = socket.create_connection((host, int(port)), 5)
        except OSError:
            caller.close()
            return
        daemon.settimeout(None)
        there, back = bytearray(), bytearray()
        with self._lock:
            if self._is_over:
                caller.close()
                daemon.close()
                return
            self._sockets += [caller, daemon]
            self._to.append(there)
            self._from.append(back)
        for source, sink, record in ((caller, daemon, there), (daemon, caller, back)):
            pump = threading.Thread(target=self._pump, args=(source, sink, record), daemon=True)
            pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if not self.is_open.is_set():
                    self.held.set()
                    self.is_open.wait()
                record += data
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def messages_by_stream(sent: bytes) -> list[list[bytes]]:
    """Return the gRPC messages of each call on a connection, in plaintext, from its first frame."""
    data: dict[int, bytearray] = defaultdict(bytearray)
    at = 0
    while at + 9 <= len(sent):
        size, kind, flags = int.from_bytes(sent[at : at + 3], "big"), sent[at + 3], sent[at + 4]
        stream = int.from_bytes(sent[at + 5 : at + 9], "big") & 0x7FFFFFFF
        payload = sent[at + 9 : at + 9 + size]
        at += 9 + size
        if kind == 0:
            padding = payload[0] if flags & 8 else 0
            data[stream] += payload[1 : size - padding] if flags & 8 else payload
    return [_messages(part) for part in data.values()]


def _messages(data: bytearray) -> list[bytes]:
    found, at = [], 0
    while at + 5 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        assert not data[at], "a compressed message"
        found.append(bytes(data[at + 5 : at + 5 + size]))
        at += 5 + size
    return found
