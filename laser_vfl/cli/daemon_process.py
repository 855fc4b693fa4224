"""Running a daemon as a process: log to stderr, a ready line, a clean end on a signal."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc.aio

from laser_vfl.config.address import Address
from laser_vfl.config.section import ConfigFile
from laser_vfl.core.errors import ConfigError
from laser_vfl.transport.grpc_texts import LOGGER as GRPC_LOGGER

C = TypeVar("C", bound=ConfigFile)

log = logging.getLogger(__name__)


@contextmanager
def importing() -> Iterator[None]:
    """Import without garbage collection: modules stay, and searching them takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def listening_at(metrics: str | None, config: C) -> C:
    """Return a configuration with another address for the metrics, if one was given."""
    if metrics is None:
        return config
    try:
        address = Address.parse(metrics)
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, where="--metrics-listen") from None
    return config.model_copy(update={"metrics_listen": address})


def say_ready(role: str, name: str) -> Callable[..., None]:
    """Return a function that prints the one line on stdout that others wait for."""

    def say(**addresses: str) -> None:
        words = (f"{key}={value}" for key, value in addresses.items())
        print("ready", f"role={role}", f"name={name}", *words, flush=True)

    return say


def run_until_signal(daemon: Coroutine[Any, Any, None], name: str, log_level: str) -> None:
    """Run a daemon to its end; SIGTERM and SIGINT end it cleanly, with exit code 0."""
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level.upper(),
        format=f"%(asctime)s %(levelname)-7s {name}: %(message)s",
    )
    GRPC_LOGGER.addFilter(is_worth_a_line)
    asyncio.run(_until_signal(daemon))


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Leave out the traceback that gRPC logs for every caller that hangs up before its answer.

    gRPC reports that as an error inside itself, which no service of ours raises.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


async def _until_signal(daemon: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(daemon)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped by a signal")
