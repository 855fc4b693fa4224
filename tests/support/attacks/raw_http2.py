"""HTTP/2 by hand: calls of a kind that a gRPC library does not make."""

import re
import select
import socket
import ssl
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4
FIRST_WINDOW = 65_535
MOST_IN_FRAME = 16_384
TIMEOUT_S = 20.0


def tls_socket(
    address: str, name: str, ca: str, shown: dict[str, str] | None, *, version: Any = None
) -> ssl.SSLSocket:
    """Shake hands with a daemon, with another version of TLS if wanted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.set_alpn_protocols(["h2"])
    if shown:
        context.load_cert_chain(shown["cert"], shown["key"])
    if version is not None:
        context.minimum_version = context.maximum_version = version
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname=name)


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return one frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def request_headers(method: str, host: str, **more: str) -> bytes:
    """Return the headers of a gRPC call, none of them compressed."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": method,
        ":authority": host,
        "te": "trailers",
        "content-type": "application/grpc",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )


def message(content: bytes, *, is_compressed: bool = False) -> bytes:
    """Return a message as gRPC frames it."""
    return struct.pack(">BI", is_compressed, len(content)) + content


def bomb(num_bytes: int) -> bytes:
    """Return zeros under gzip, without ever holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    parts = [packer.compress(zeros) for _ in range(num_bytes >> 20)]
    return b"".join(parts) + packer.flush()


def call(
    connection: socket.socket,
    method: str,
    parts: Iterable[bytes],
    *,
    is_whole: bool = True,
    **headers: str,
) -> str:
    """Make a call whose body is given in parts; return the status, its number and our error.

    One that is not whole leaves the other side to wait for more.
    """
    connection.sendall(PREFACE + frame(SETTINGS))
    head = request_headers(method, "localhost", **headers)
    connection.sendall(frame(HEADERS, head, flags=END_HEADERS, stream=1))
    answers = _Answers(connection)
    for part in parts:
        for start in range(0, len(part), MOST_IN_FRAME):
            piece = part[start : start + MOST_IN_FRAME]
            if not answers.wait_for_room(len(piece)) or answers.has_ended():
                return answers.status
            connection.sendall(frame(DATA, piece, stream=1))
    if is_whole:
        connection.sendall(frame(DATA, flags=END_STREAM, stream=1))
    return answers.wait_for_status()


class _Answers:
    """What comes back on a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._room = {0: FIRST_WINDOW, 1: FIRST_WINDOW}
        self._frames = _frames(connection)
        self._headers = b""

    @property
    def status(self) -> str:
        """The status by its number and the error in the trailer; empty before it has come."""
        found = re.search(rb"grpc-status.(\d+)", self._headers, re.DOTALL)
        error = re.search(rb"laser-vfl-error.([A-Za-z]+)", self._headers, re.DOTALL)
        if found is None:
            return ""
        return " ".join(part[1].decode() for part in (found, error) if part)

    def wait_for_room(self, size: int) -> bool:
        """Wait until so much may be sent; False if the call is over before."""
        while min(self._room.values()) < size:
            if not self._take() or self.status:
                return False
        self._room = {stream: room - size for stream, room in self._room.items()}
        return True

    def has_ended(self) -> bool:
        """Look whether a status has come already."""
        while not self.status and select.select([self._connection], [], [], 0)[0]:
            if not self._take():
                return True
        return bool(self.status)

    def wait_for_status(self) -> str:
        while not self.status and self._take():
            pass
        return self.status

    def _take(self) -> bool:
        kind, flags, stream, payload = next(self._frames, (None, 0, 0, b""))
        if kind is None:
            return False
        if kind == HEADERS:
            self._headers += payload
        elif kind == WINDOW_UPDATE and stream in self._room:
            self._room[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self._connection.sendall(frame(SETTINGS, flags=ACK))
            for start in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[start : start + 6])
                if key == 4:
                    self._room[1] += value - FIRST_WINDOW
        elif kind == PING and not flags & ACK:
            self._connection.sendall(frame(PING, payload, flags=ACK))
        return True


def _frames(connection: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """Read frames until the other side hangs up."""
    buffer = b""
    while True:
        while len(buffer) < 9 or len(buffer) < 9 + int.from_bytes(buffer[:3], "big"):
            try:
                more = connection.recv(65_536)
            except (ConnectionError, ssl.SSLError):
                return
            if not more:
                return
            buffer += more
        size = int.from_bytes(buffer[:3], "big")
        yield buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big"), buffer[9 : 9 + size]
        buffer = buffer[9 + size :]
