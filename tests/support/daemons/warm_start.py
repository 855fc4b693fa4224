"""Processes that a warm server forks, with the manners of `subprocess.Popen`."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

SERVER = Path(__file__).with_name("warm_server.py")
POLL_S = 0.01


COLD = "LASER_VFL_TEST_COLD"
"""The variable that a test sets to have clients start in full."""

_PATH_AT_FIRST = os.environ.get("PYTHONPATH")


def can_be_warm(command: Sequence[str]) -> bool:
    """Tell whether this is a client daemon, and no test wants to change how Python starts."""
    is_client = "client" in command[1:3] and "run" in command[2:4] and command[0] != "-c"
    changed = os.environ.get("PYTHONPATH") != _PATH_AT_FIRST
    return is_client and not changed and not {COLD, "LD_PRELOAD"} & os.environ.keys()


class WarmProcess:
    """A process that the server of this test process has forked."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
    ) -> None:
        self.args = [sys.executable, *command]
        self.returncode: int | None = None
        self._server = _server()
        wanted = {"command": list(command), "directory": str(cwd), "environment": dict(env)}
        self.pid = self._server.start(wanted, (stdout.fileno(), stderr.fileno()))

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        give_up_at = time.monotonic() + timeout if timeout is not None else float("inf")
        while (code := self.poll()) is None:
            if time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """The server, and what it has said so far."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen([sys.executable, SERVER], stdin=theirs, env=environment)
        theirs.close()
        self._lock = threading.Lock()
        self._unread = b""
        self._started: list[int] = []
        self._ended: dict[int, int] = {}

    def start(self, wanted: Mapping[str, object], descriptors: tuple[int, int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(wanted).encode()], list(descriptors))
            while not self._started:
                self._hear(None)
            return self._started.pop()

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            self._hear(0.0)
            return self._ended.get(pid)

    def _hear(self, timeout: float | None) -> None:
        self._socket.settimeout(timeout)
        try:
            said = self._socket.recv(65536)
        except BlockingIOError:
            return
        assert said, "the server that starts clients has ended"
        *lines, self._unread = (self._unread + said).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "started" in message:
                self._started.append(message["started"])
                self._ended.pop(message["started"], None)
            else:
                self._ended[message["ended"]] = message["code"]


@cache
def _server() -> _Server:
    return _Server()
