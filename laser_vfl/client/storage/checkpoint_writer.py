"""Checkpoints written in a thread of their own, so that training never waits for a disk."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

import torch

from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.core.errors import LaserError

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own."""

    def __init__(
        self, checkpoints: Checkpoints, on_written: Callable[[int], None] = lambda step: None
    ) -> None:
        self._checkpoints = checkpoints
        self._on_written = on_written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._lock = Lock()
        self._under_way: Future[None] | None = None
        self._closed = False
        self._failures: set[object] = set()

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written; then a copy of the state is not worth making."""
        under_way = self._under_way
        return under_way is not None and not under_way.done()

    def submit(
        self, step: int, tensors: Mapping[str, torch.Tensor], info: Mapping[str, Any]
    ) -> bool:
        """Begin to write tensors that nobody changes any more; False if another is under way."""
        with self._lock:
            if self._closed or self.busy:
                return False
            self._under_way = self._thread.submit(self._write, step, tensors, info)
            return True

    def wait(self) -> None:
        """Return when nothing is under way, its callback included."""
        under_way = self._under_way
        if under_way is not None:
            wait([under_way])

    def close(self) -> None:
        """Finish what is under way; nothing more is written."""
        with self._lock:
            self._closed = True
        self._thread.shutdown()

    def _write(
        self, step: int, tensors: Mapping[str, torch.Tensor], info: Mapping[str, Any]
    ) -> None:
        try:
            self._checkpoints.write(step, tensors, info)
        except LaserError as error:
            reason = error.__context__
            self._complain(getattr(reason, "errno", type(error)), str(error))
        except Exception as error:
            text = f"checkpoint {step} is not written ({type(error).__name__}: {error})"
            self._complain(type(error), f"{text}; training goes on without it")
        else:
            self._failures.clear()
            self._on_written(step)

    def _complain(self, kind: object, text: str) -> None:
        """Say once what is wrong, until it has been right in between."""
        if kind not in self._failures:
            self._failures.add(kind)
            log.error("%s", text)
