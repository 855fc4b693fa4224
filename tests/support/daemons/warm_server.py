"""Starts client daemons by forking: each is a process of its own, and none imports torch again.

Importing takes two or three seconds, and the tests start well over a thousand clients. Over its
standard input, a socket, this is told what to run, with descriptors for stdout and stderr; it
answers with pids, and later with how each has ended.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

import laser_vfl.cli.main
import laser_vfl.client.daemon
import laser_vfl.models  # noqa: F401

MAX_REQUEST_BYTES = 1 << 20


def main() -> None:
    """Serve until whoever started this is gone."""
    asked = socket.socket(fileno=os.dup(0))
    gc.freeze()
    running: dict[int, int] = {}
    """The pid of each child, by a descriptor that tells when it has ended."""
    while True:
        ready, _, _ = select.select([asked, *running], [], [])
        for one in ready:
            if one is asked:
                message, descriptors, _, _ = socket.recv_fds(asked, MAX_REQUEST_BYTES, 2)
                if not message:
                    for pid in running.values():
                        os.kill(pid, signal.SIGKILL)
                    return
                pid = os.fork()
                if pid == 0:
                    asked.close()
                    _become(json.loads(message), descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                running[os.pidfd_open(pid)] = pid
                _tell(asked, {"started": pid})
            else:
                pid = running.pop(one)
                os.close(one)
                _, status = os.waitpid(pid, 0)
                _tell(asked, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(asked: socket.socket, message: dict[str, int]) -> None:
    asked.sendall(json.dumps(message).encode() + b"\n")


def _become(wanted: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be what was asked for, as if it had been started from a shell."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((null, 0), (descriptors[0], 1), (descriptors[1], 2)):
        os.dup2(descriptor, place)
    os.closerange(3, 256)
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os._exit(_run(wanted["command"]))


def _run(command: list[str]) -> int:
    """Run `-m module ...` or `program.py ...` and return its exit code."""
    code: Any = 0
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = filter(None, given)
    try:
        if command[0] == "-m":
            sys.argv, sys.path[0] = command[1:], os.getcwd()
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = command, os.path.dirname(command[0])
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
