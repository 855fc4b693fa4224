"""The metrics of a coordinator: connected clients, outcomes of runs, refused callers."""

import time
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.federation_status import ACTIVITIES, FederationStatus
from laser_vfl.coordinator.rules.membership.view_change import Departure
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.observability.metric_definitions import (
    GENERATION,
    MEMBER,
    MetricDefinition,
    Refusals,
    availability,
)
from laser_vfl.transport.grpc_status import REFUSALS

AWAY = "away"
RUN_EVENTS = ("started", "changed", "finished", "stopped", "given up")
OUTCOMES = ("aligned", "refused", "given up")

CLIENTS = MetricDefinition(
    "laser_vfl_clients",
    "gauge",
    "How many clients of the roster are in each state; who is not connected is away",
    ("state",),
)
CLIENT_UP = MetricDefinition(
    "laser_vfl_client_up",
    "gauge",
    "Whether a client of the roster is connected to the coordinator",
    ("client",),
)
CLIENT_STEP = MetricDefinition(
    "laser_vfl_client_next_step",
    "gauge",
    "The first step that a client has not done, of the run that it is in, as it says itself",
    ("client",),
)
TRAINING = MetricDefinition("laser_vfl_training", "gauge", "Whether a run is under way")
WAITING = MetricDefinition(
    "laser_vfl_waiting_for",
    "gauge",
    "Whether the run that is wanted or under way waits for a client",
    ("client",),
)
COMPLETE = MetricDefinition(
    "laser_vfl_complete_checkpoint_step",
    "gauge",
    "The latest step of which everybody has a checkpoint; 0 without one",
)
RUNS = MetricDefinition(
    "laser_vfl_run_events_total",
    "counter",
    "What became of runs; members change",
    ("event",),
)
ALIGNMENTS = MetricDefinition(
    "laser_vfl_alignments_total",
    "counter",
    "Alignments that have ended, by what they were for and how they ended",
    ("purpose", "outcome"),
)
EXCLUDED = MetricDefinition(
    "laser_vfl_exclusions_total",
    "counter",
    "How often a run went on without a member",
    ("client",),
)

MEASURES = (
    CLIENTS,
    CLIENT_UP,
    CLIENT_STEP,
    TRAINING,
    WAITING,
    COMPLETE,
    RUNS,
    ALIGNMENTS,
    EXCLUDED,
)


class CoordinatorMetrics(FederationObserver, Collector):
    """Counts events; all else is read from the federation when the page is."""

    def __init__(self, roster: tuple[str, ...]) -> None:
        self.refusals = Refusals(REFUSALS)
        self.status: Callable[[float], FederationStatus] | None = None
        self._runs = RUNS.counter()
        self._alignments = ALIGNMENTS.counter()
        self._excluded = EXCLUDED.counter()
        for event in RUN_EVENTS:
            self._runs.labels(_label(event))
        for purpose in AlignmentPurpose:
            for outcome in OUTCOMES:
                self._alignments.labels(_label(purpose.value), _label(outcome))
        for client in roster:
            self._excluded.labels(client)

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """Count what became of a run, or of an alignment."""
        if isinstance(subject, Run):
            self._runs.labels(_label(event)).inc()
        elif event in OUTCOMES:
            self._alignments.labels(_label(subject.purpose.value), _label(event)).inc()

    def member_excluded(self, run: Run, departure: Departure, identity: str) -> None:
        """Count that a run goes on without a member."""
        self._excluded.labels(departure.client).inc()

    def collect(self) -> Iterator[Metric]:
        """Return all of it."""
        for source in (self.refusals.counter, self._runs, self._alignments, self._excluded):
            yield from source.collect()
        if self.status is not None:
            yield from _described(self.status(time.monotonic()))


def _described(status: FederationStatus) -> Iterator[Metric]:
    clients = status.clients
    states = [client.activity if client.up else AWAY for client in clients]
    yield CLIENTS.now({(state,): states.count(state) for state in (*ACTIVITIES, AWAY)})
    yield CLIENT_UP.now({(client.client,): client.up for client in clients})
    yield CLIENT_STEP.now({(client.client,): client.next_step for client in clients})
    yield TRAINING.now(status.training)
    yield WAITING.now({(c.client,): c.client in status.waiting_for for c in clients})
    yield COMPLETE.now(status.checkpoint)
    yield GENERATION.now(status.generation)
    yield MEMBER.now({(c.client,): c.client in status.members for c in clients})
    yield from availability(status.num_samples, {c.client: c.num_samples for c in clients})


def _label(words: str) -> str:
    return words.replace(" ", "_")
