"""The predictor that applications hold: ids in, predictions of a running client daemon out."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

from laser_vfl.core.errors import LimitExceeded
from laser_vfl.remote.calls import Access, call, client_access, open_channel
from laser_vfl.remote.operations import ask_client_status
from laser_vfl.transport.prediction_replies import Predictions, decode_predictions
from laser_vfl.transport.prediction_requests import Features, checked_deadline_s, encode_request
from laser_vfl.v1 import prediction_pb2_grpc

DAY_S = 86_400.0

PATIENCE_S = 60.0
"""How long to wait for an answer when the daemon decides on the deadline."""


class Predictor:
    """A connection to a client daemon, for any number of threads.

    `deadline` is how many seconds a prediction may take, unless a call says otherwise; blocks that
    have not come by then are left out. `ca`, `cert` and `key` are files of a certificate that may
    ask this client; or, where it takes tokens, `ca` with `token` and the `name` that the client
    proves itself by, such as bank.client.churn. Without any of these only a daemon that runs with
    --insecure, and so on loopback, can be asked.
    """

    def __init__(
        self,
        address: str,
        *,
        deadline: float | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        token: str | None = None,
        name: str | None = None,
    ) -> None:
        self._deadline_s = checked_deadline_s(deadline)
        self._connect(address, client_access(address, ca, cert, key, token, name))

    @classmethod
    def by_access(cls, address: str, access: Access) -> Self:
        """Return a predictor for somebody who has found out already how to reach the daemon."""
        predictor = cls.__new__(cls)
        predictor._deadline_s = None
        predictor._connect(address, access)
        return predictor

    def _connect(self, address: str, access: Access) -> None:
        self._closed = Event()
        self._address = address
        self._channel = open_channel(address, access)
        self._stub = prediction_pb2_grpc.PredictionStub(self._channel)

    def predict(
        self, ids: Iterable[Any], deadline: float | None = None, features: Features = None
    ) -> Predictions:
        """Predict samples by their ids, text or integers; a sample that cannot be has an error.

        `features` takes the place of the client's own table for these samples: columns of values,
        a mapping for each id, a data frame, or an array of numbers (ids, ...).

        A client that has too much to do says when to ask again; that is done while the deadline
        allows it.
        """
        request = encode_request(ids, self._deadline_s if deadline is None else deadline, features)
        has_deadline = request.HasField("deadline_s")
        patience_s = min(request.deadline_s, DAY_S) if has_deadline else PATIENCE_S
        give_up_at = time.monotonic() + patience_s
        while True:
            # The daemon keeps the deadline; this only ends the wait for one that does not.
            timeout_s = patience_s * 1.5 + 1.0 if has_deadline else patience_s
            try:
                response = call(self._stub.Predict, request, self._address, timeout_s)
                return decode_predictions(request.ids, response)
            except LimitExceeded as error:
                patience_s = give_up_at - time.monotonic() - error.retry_after_s
                if patience_s <= 0 or self._closed.wait(error.retry_after_s):
                    raise
            if has_deadline:
                request.deadline_s = patience_s

    def predict_batches(
        self,
        batches: Iterable[Iterable[Any]],
        deadline: float | None = None,
        max_in_flight: int = 4,
    ) -> Iterator[Predictions]:
        """Yield the predictions of each batch of ids, in order, with a few requests under way.

        No more batches are taken than are under way, so that there may be any number of them.
        """
        pool = ThreadPoolExecutor(max_in_flight, thread_name_prefix="predict")
        waiting: deque[Future[Predictions]] = deque()
        try:
            for batch in batches:
                if len(waiting) == max_in_flight:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(self.predict, batch, deadline))
            while waiting:
                yield waiting.popleft().result()
        finally:
            # A caller that gives up does not wait for the rest; close() ends the calls under way.
            pool.shutdown(wait=False, cancel_futures=True)

    def status(self) -> dict[str, Any]:
        """Return how the daemon is doing; the keys are those of `operations.client_status`."""
        return ask_client_status(self._stub, self._address)

    def close(self) -> None:
        """End the connection, and whatever is being asked over it."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
