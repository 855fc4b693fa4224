"""A client in Python: the same daemon, with its servers in the background of a notebook."""

import asyncio
import concurrent.futures.thread  # noqa: F401 (to be told of the end after us)
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import nn

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.daemon import ClientDaemon
from laser_vfl.client.own_models import OwnModels
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError, TrainingStopped
from laser_vfl.transport.prediction_replies import Predictions, decode_predictions
from laser_vfl.transport.prediction_requests import Features, encode_request
from laser_vfl.v1 import prediction_pb2 as pb

T = TypeVar("T")


class Client:
    """One organisation's client. Use it as a context manager, or `close` it.

    Its servers run in the background from the first `fit`, `predict` or `start` on. All clients of
    a process share one thread for them, so that a whole federation can be tried in one notebook.
    """

    def __init__(
        self, config: ClientConfig, own: OwnModels | None = None, *, insecure: bool = False
    ) -> None:
        self.config = config
        self._own = own or OwnModels()
        self._insecure = insecure
        self._lock = threading.Lock()
        self._running: RunningDaemon | None = None

    @classmethod
    def from_config(
        cls,
        path: str | Path,
        *,
        representation: nn.Module | None = None,
        fusion: nn.Module | None = None,
        insecure: bool = False,
    ) -> Self:
        """Make a client from its YAML file; modules given here go before those that it names.

        Without `tls` in the file, pass `insecure=True`; then all addresses have to be on loopback.
        """
        for name, module in (("representation", representation), ("fusion", fusion)):
            if module is not None and not isinstance(module, nn.Module):
                raise ConfigError(f"{name} is no torch.nn.Module", hint="give an instance of one")
        config = load_config(Path(path), ClientConfig)
        return cls(config, OwnModels(representation, fusion), insecure=insecure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def predict_address(self) -> str:
        """Where other processes ask this client for predictions."""
        return self._started().predict_address

    def start(self) -> Self:
        """Start the servers, if they do not run yet, and wait until they listen."""
        self._started()
        return self

    def fit(self) -> Self:
        """Train with the federation: wait for the others, train, evaluate, publish."""
        self._started().fit()
        return self

    def predict(
        self, ids: Iterable[Any], deadline: float | None = None, features: Features = None
    ) -> Predictions:
        """Predict samples from whichever blocks can be had within `deadline` seconds."""
        request = encode_request(ids, deadline, features)
        response = self._started().predict(request)
        return decode_predictions(request.ids, response)

    def close(self) -> None:
        """Leave the federation and stop the servers."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.end()

    def _started(self) -> "RunningDaemon":
        with self._lock:
            if self._running is None or self._running.is_over:
                self._running = RunningDaemon(
                    ClientDaemon(self.config, insecure=self._insecure, own=self._own)
                )
            return self._running


class RunningDaemon:
    """A daemon from its start to its end, on the event loop that all clients share."""

    def __init__(self, daemon: ClientDaemon) -> None:
        self._daemon = daemon
        self._ended = threading.Event()
        self._waiting: set[Future[Any]] = set()
        started: Future[None] = Future()
        self._whole = _run(self._run_daemon(started))
        self._whole.add_done_callback(lambda whole: self._release_waiters(whole, started))
        started.result()

    @property
    def is_over(self) -> bool:
        """Whether the daemon has stopped, by itself or not."""
        return self._ended.is_set()

    @property
    def predict_address(self) -> str:
        """Where other processes ask it for predictions."""
        return self._daemon.predict_address

    def fit(self) -> None:
        """Want a run, and wait until its model is published."""
        self._wait_for(self._daemon.fit())

    def predict(self, request: pb.PredictRequest) -> pb.PredictResponse:
        """Answer a request."""
        return self._wait_for(self._daemon.predict(request))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that can only come while the daemon lives."""
        future = _run(work)
        self._waiting.add(future)
        try:
            if self.is_over:
                future.cancel()
            return future.result()
        except CancelledError:
            if self._whole.done() and not self._whole.cancelled():
                self._whole.result()
            raise TrainingStopped("this client was closed") from None
        except KeyboardInterrupt:
            future.cancel()
            raise
        finally:
            self._waiting.discard(future)

    def end(self) -> None:
        """Stop the daemon and wait until it has."""
        self._whole.cancel()
        self._ended.wait()

    def _release_waiters(self, ended: "Future[None]", started: "Future[None]") -> None:
        """Tell whoever waits that there is nothing more to wait for."""
        if not started.done():
            error = None if ended.cancelled() else ended.exception()
            started.set_exception(error or CancelledError())
        for future in list(self._waiting):
            future.cancel()

    async def _run_daemon(self, started: "Future[None]") -> None:
        try:
            async with self._daemon:
                started.set_result(None)
                await self._daemon.run()
        finally:
            self._ended.set()


_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_loop_lock = threading.Lock()


def _run(work: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run something on the event loop of all clients of this process."""
    global _loop, _thread
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="laser-vfl", daemon=True)
            _thread.start()
    return asyncio.run_coroutine_threadsafe(work, _loop)


def _stop_loop() -> None:
    """Stop the loop of a script that ends without `close`, before its threads are taken away.

    What runs on it would find no thread to work in, and call that a failure. And a thread that the
    interpreter ends inside native code takes the whole process with it.
    """
    if _loop is not None and _thread is not None:
        _loop.call_soon_threadsafe(_loop.stop)
        _thread.join(1.0)


# `atexit` comes too late: executors have given up their threads by then, and they do so first of
# all that is registered here, in the reverse order. Python has no public name for it.
threading._register_atexit(_stop_loop)  # type: ignore[attr-defined]
