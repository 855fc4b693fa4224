"""What a client counts as it happens, for its metrics page: steps, phases, traffic, predictions."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.observability.metric_definitions import MetricDefinition, Refusals
from laser_vfl.observability.peer_traffic import BYTES, FRAMES, PeerTraffic
from laser_vfl.transport.grpc_status import REFUSALS
from laser_vfl.v1 import peer_pb2 as pb

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets, for steps and for predictions."""

COMPUTE, OTHER_WAIT = "compute", "wait_other"
WAITS: dict[int, str] = {
    pb.FRAME_KIND_REPRESENTATION: "wait_representations",
    pb.FRAME_KIND_GRADIENT: "wait_gradients",
}
PHASES = (COMPUTE, *WAITS.values(), OTHER_WAIT)

STEPS = MetricDefinition(
    "laser_vfl_steps_total", "counter", "Training steps that this client has taken part in"
)
SKIPPED = MetricDefinition(
    "laser_vfl_steps_skipped_total",
    "counter",
    "Training steps that had nothing to do with this client's block",
)
REDONE = MetricDefinition(
    "laser_vfl_steps_redone_total",
    "counter",
    "Training steps that were dropped because members changed, to be done again",
)
STEP_TIME = MetricDefinition(
    "laser_vfl_step_seconds", "histogram", "How long the steps took that this client took part in"
)
PHASE_TIME = MetricDefinition(
    "laser_vfl_step_phase_seconds_total",
    "counter",
    "Time in these steps by phase: computing, or waiting for representations, for gradients, or "
    "for anything else",
    ("phase",),
)
LOSS = MetricDefinition(
    "laser_vfl_loss",
    "gauge",
    "Mean loss of this client's head over the last second of steps; absent without a head",
)
EPOCH = MetricDefinition("laser_vfl_epoch", "gauge", "The epoch of the last training step, from 0")
REQUESTS = MetricDefinition(
    "laser_vfl_prediction_requests_total", "counter", "Requests for predictions that were answered"
)
LATENCY = MetricDefinition(
    "laser_vfl_prediction_seconds", "histogram", "How long the answer to such a request took"
)
PREDICTED = MetricDefinition(
    "laser_vfl_predictions_total",
    "counter",
    "Samples predicted, by the number of blocks in the prediction",
    ("blocks",),
)
UNPREDICTED = MetricDefinition(
    "laser_vfl_prediction_errors_total",
    "counter",
    "Samples asked for that could not be predicted, such as those this client does not hold",
)

COUNTED = (
    STEPS,
    SKIPPED,
    REDONE,
    STEP_TIME,
    PHASE_TIME,
    LOSS,
    EPOCH,
    REQUESTS,
    LATENCY,
    PREDICTED,
    UNPREDICTED,
    FRAMES,
    BYTES,
)


class ClientMetrics(Collector):
    """One client's counts since it was started. The training thread and the event loop add."""

    def __init__(self) -> None:
        self.traffic = PeerTraffic()
        self.refusals = Refusals(REFUSALS)
        self._steps = STEPS.counter()
        self._skipped = SKIPPED.counter()
        self._redone = REDONE.counter()
        self._step_time = STEP_TIME.histogram(SECONDS)
        self._phase_time = PHASE_TIME.counter()
        self._phases = {phase: self._phase_time.labels(phase) for phase in PHASES}
        self._loss = LOSS.gauge()
        self._has_loss = False
        self._epoch = EPOCH.gauge()
        self._requests = REQUESTS.counter()
        self._latency = LATENCY.histogram(SECONDS)
        self._predicted = PREDICTED.counter()
        self._predicted_from: dict[int, Counter] = {}
        """The same by the number of blocks."""
        self._unpredicted = UNPREDICTED.counter()
        self._waited = dict.fromkeys(PHASES, 0.0)
        """Of the step under way."""

    @contextmanager
    def waiting(self, kind: "pb.FrameKind.ValueType") -> Iterator[None]:
        """Count the time in here as waiting for frames of a kind."""
        begun_at = time.monotonic()
        try:
            yield
        finally:
            self._waited[WAITS.get(kind, OTHER_WAIT)] += time.monotonic() - begun_at

    def step_begins(self) -> None:
        """Begin a step: no time has been spent waiting yet."""
        self._waited = dict.fromkeys(PHASES, 0.0)

    def step_done(self, seconds: float) -> None:
        """Count a step that this client took part in, and where its time went."""
        self._steps.inc()
        self._step_time.observe(seconds)
        waited = self._waited
        waited[COMPUTE] = max(0.0, seconds - sum(waited.values()))
        for phase, phase_s in waited.items():
            if phase_s:
                self._phases[phase].inc(phase_s)

    def step_skipped(self) -> None:
        """Count a step in which this client had no part."""
        self._skipped.inc()

    def steps_dropped(self, num: int) -> None:
        """Count steps that have to be done again."""
        self._redone.inc(num)

    def trained(self, epoch: int, loss: float | None) -> None:
        """Show how far training is; `loss` is None without a head."""
        self._epoch.set(epoch)
        if loss is not None:
            self._loss.set(loss)
            self._has_loss = True

    def predicted(self, by_subset: Mapping[int, int], num_errors: int, seconds: float) -> None:
        """Count a request: how many samples were predicted from which blocks."""
        self._requests.inc()
        self._latency.observe(seconds)
        self._unpredicted.inc(num_errors)
        for mask, num in by_subset.items():
            num_blocks = mask.bit_count()
            if num_blocks not in self._predicted_from:
                self._predicted_from[num_blocks] = self._predicted.labels(str(num_blocks))
            self._predicted_from[num_blocks].inc(num)

    def collect(self) -> Iterator[Metric]:
        """Return all of it, for the page."""
        sources: tuple[Collector, ...] = (
            self.traffic,
            self.refusals.counter,
            self._steps,
            self._skipped,
            self._redone,
            self._step_time,
            self._phase_time,
            *((self._loss,) if self._has_loss else ()),
            self._epoch,
            self._requests,
            self._latency,
            self._predicted,
            self._unpredicted,
        )
        for source in sources:
            yield from source.collect()
