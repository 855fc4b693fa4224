"""Small pieces of writing that are done away from the event loop, one after another."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""So many pieces may wait for a disk that hangs; further ones are left out."""

Work = Callable[[], None]
RunWork = Callable[[Work], None]
"""Does a piece of work, now or soon."""


def at_once(work: Work) -> None:
    """Do a piece of work here and now, as a command without an event loop does."""
    work()


class BackgroundWriter:
    """One thread that writes lines in the order in which they were given."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._room = BoundedSemaphore(MAX_WAITING)
        self._is_full = False

    def run(self, work: Work) -> None:
        """Have a piece of work done soon."""
        if self._room.acquire(blocking=False):
            self._is_full = False
            self._thread.submit(self._do, work)
        elif not self._is_full:
            self._is_full = True
            log.error("the disk is too slow: lines of logs in the state directory are left out")

    def close(self) -> None:
        """Wait until all of it is done."""
        self._thread.shutdown()

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception:
            log.exception("a line could not be written; this is a bug")
        finally:
            self._room.release()
