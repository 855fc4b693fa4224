"""A real daemon that says which files of its state directory it writes on its event loop.

What it does before it is ready is left out: nobody waits for it then.
"""

import asyncio
import os
import sys
import threading
from typing import Any

from laser_vfl.cli import main
from laser_vfl.transport.server import Server

ON_LOOP = "written on the event loop:"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND

fsync = os.fsync

_told: set[str] = set()
_is_ready = threading.Event()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & WRITES:
            return
    elif event in ("os.rename", "os.truncate", "os.remove", "os.rmdir", "shutil.rmtree"):
        path = arguments[0]
    else:
        return
    _check(path)


def _check(path: object) -> None:
    """Say so if a file of the state directory is touched on the event loop."""
    is_loop = threading.current_thread() is threading.main_thread() and _has_loop()
    if not is_loop or not _is_ready.is_set() or "-state" not in str(path) or str(path) in _told:
        return
    _told.add(str(path))
    print(ON_LOOP, path, file=sys.stderr, flush=True)


def _watched_fsync(file: Any) -> None:
    """Sync a file. Audit hooks do not hear of it, so `os.fsync` itself is replaced."""
    descriptor = file if isinstance(file, int) else file.fileno()
    _check(f"{os.readlink(f'/proc/self/fd/{descriptor}')} (synced)")
    fsync(file)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    set_healthy = Server.set_healthy

    async def serving(server: Server, healthy: bool, service: str = "") -> None:
        """The health service says that there is a model, or that the coordinator serves."""
        await set_healthy(server, healthy, service)
        asyncio.get_running_loop().call_later(0.5, _is_ready.set)

    Server.set_healthy = serving  # type: ignore[method-assign]
    sys.addaudithook(_hook)
    os.fsync = _watched_fsync
    main()
