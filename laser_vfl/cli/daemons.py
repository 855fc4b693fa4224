"""How both daemons live in a process: log to stderr, say when ready, end cleanly on a signal."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


@contextmanager
def importing() -> Iterator[None]:
    """Import what stays for good: nothing of it is garbage, and looking for some takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def say_ready(role: str, name: str) -> Callable[..., None]:
    """Return a function that prints the one line on stdout that others wait for."""

    def say(address: str, predict: str = "") -> None:
        more = f" predict={predict}" if predict else ""
        print(f"ready role={role} name={name} address={address}{more}", flush=True)

    return say


def run_until_signal(daemon: Coroutine[Any, Any, None], name: str, log_level: str) -> None:
    """Run a daemon to its end; SIGTERM and SIGINT end it cleanly, with exit code 0."""
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level.upper(),
        format=f"%(asctime)s %(levelname)-7s {name}: %(message)s",
    )
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_worth_a_line)
    asyncio.run(_until_signal(daemon))


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Leave out the traceback that gRPC has for every caller who hangs up before its answer."""
    return not record.getMessage().startswith("ExecuteBatchError")


async def _until_signal(daemon: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(daemon)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped by a signal")
