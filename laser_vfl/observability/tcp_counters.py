"""How many bytes this process has sent over TCP, as the kernel counts them (Linux only)."""

import os
import socket
import struct
from pathlib import Path

_FDS = Path("/proc/self/fd")
_TCP_INFO_BYTES = 232
_BYTES_ACKED_OFFSET = 120


def tcp_bytes_sent() -> int | None:
    """Return the TCP payload that peers have acknowledged on the connections open now.

    This is what really crossed: frames, HTTP/2 and TLS, without retransmissions. None where the
    kernel does not tell.
    """
    if not _FDS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    return sum(_bytes_acked(int(fd.name)) for fd in list(_FDS.iterdir()))


def _bytes_acked(fd: int) -> int:
    try:
        duplicate = os.dup(fd)
    except OSError:
        return 0
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return 0
    with connection:
        if connection.type != socket.SOCK_STREAM or connection.family == socket.AF_UNIX:
            return 0
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return 0
    if len(info) < _BYTES_ACKED_OFFSET + 8:
        return 0
    return int(struct.unpack_from("<Q", info, _BYTES_ACKED_OFFSET)[0])
