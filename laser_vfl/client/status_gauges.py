"""The gauges of a client's metrics page: its state at the moment when the page is read."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.client.run.activity import Activity
from laser_vfl.client.run.supervisor import RunSupervisor
from laser_vfl.client.serving.serving_report import ServingReport
from laser_vfl.client.session.coordinator_session import Session
from laser_vfl.client.work_progress import ALIGNING, READING
from laser_vfl.observability.metric_definitions import (
    GENERATION,
    MEMBER,
    MetricDefinition,
    availability,
)

DROPPED_FOR = ("old generation", "repeated", "earlier life", "other run")
OFFENCES = (
    "oversize frame",
    "no frame",
    "false name",
    "useless frames",
    "unfit numbers",
    "misshapen",
)

COORDINATOR_UP = MetricDefinition(
    "laser_vfl_coordinator_up", "gauge", "Whether this client is in touch with the coordinator"
)
ACTIVITY = MetricDefinition(
    "laser_vfl_activity",
    "gauge",
    "What this client does now: 1 for that, 0 for all else that it could do",
    ("activity",),
)
RUN_STEP = MetricDefinition(
    "laser_vfl_run_next_step",
    "gauge",
    "The first step of the run under way that is not done, evaluation counted on; 0 without a run",
)
RUN_STEPS = MetricDefinition(
    "laser_vfl_run_steps", "gauge", "Steps of the run under way, evaluation counted in"
)
WORK_DONE = MetricDefinition(
    "laser_vfl_work_done_items",
    "gauge",
    "How much of the long work under way is done: points of an alignment, or bytes of tables",
    ("work",),
)
WORK_TOTAL = MetricDefinition(
    "laser_vfl_work_items",
    "gauge",
    "How much the long work under way is in all; 0 without any",
    ("work",),
)
CHECKPOINT = MetricDefinition(
    "laser_vfl_checkpoint_step", "gauge", "The step of the latest checkpoint here; 0 without one"
)
STREAM_UP = MetricDefinition(
    "laser_vfl_peer_stream_up",
    "gauge",
    "Whether there is a stream to a member of the run under way",
    ("peer",),
)
DROPPED = MetricDefinition(
    "laser_vfl_frames_dropped_total", "counter", "Frames of peers that were dropped", ("reason",)
)
OFFENDED = MetricDefinition(
    "laser_vfl_offences_total", "counter", "How often peers broke the contract", ("reason",)
)
MODEL_AT = MetricDefinition(
    "laser_vfl_model_trained_timestamp_seconds",
    "gauge",
    "When the model that is served was trained, in Unix time; absent without one",
)
HELD = MetricDefinition(
    "laser_vfl_held_samples", "gauge", "Samples that this client can answer for with that model"
)
PEER_UP = MetricDefinition(
    "laser_vfl_peer_available",
    "gauge",
    "Whether a peer is asked for its block in predictions (1), or left alone (0)",
    ("peer",),
)
WANTED = MetricDefinition(
    "laser_vfl_prediction_blocks_wanted_total",
    "counter",
    "Samples for whose predictions the block of a peer was wanted",
    ("block",),
)
HAD = MetricDefinition(
    "laser_vfl_prediction_blocks_available_total",
    "counter",
    "Samples for whose predictions it came in time",
    ("block",),
)
QUESTIONS = MetricDefinition(
    "laser_vfl_peer_questions_total", "counter", "Questions of a peer that predicts", ("peer",)
)
LIMITED = MetricDefinition(
    "laser_vfl_peer_questions_refused_total",
    "counter",
    "Questions above the limits of serving.requests_per_s and serving.samples_per_s",
    ("peer",),
)
ASKED = MetricDefinition(
    "laser_vfl_peer_samples_asked_total", "counter", "Samples in these questions", ("peer",)
)
SERVED = MetricDefinition(
    "laser_vfl_peer_samples_served_total",
    "counter",
    "Samples whose representation a peer was sent in answer",
    ("peer",),
)

OBSERVED = (
    COORDINATOR_UP,
    ACTIVITY,
    RUN_STEP,
    RUN_STEPS,
    WORK_DONE,
    WORK_TOTAL,
    CHECKPOINT,
    STREAM_UP,
    DROPPED,
    OFFENDED,
    MODEL_AT,
    HELD,
    PEER_UP,
    WANTED,
    HAD,
    QUESTIONS,
    LIMITED,
    ASKED,
    SERVED,
)


@dataclass(frozen=True)
class StatusGauges(Collector):
    """Reads what the daemon keeps anyway."""

    supervisor: RunSupervisor
    serving: ServingReport
    session: Session

    def collect(self) -> Iterator[Metric]:
        """Return all of it."""
        yield from self._run()
        yield from self._frames()
        yield from self._served()
        yield from self._asked()

    def _run(self) -> Iterator[Metric]:
        supervisor, progress = self.supervisor, self.supervisor.progress
        yield COORDINATOR_UP.now(self.session.in_touch)
        yield ACTIVITY.now({(a.value,): a is supervisor.now.activity for a in Activity})
        yield RUN_STEP.now(supervisor.next_step)
        yield RUN_STEPS.now(supervisor.num_steps)
        work = progress.work.now
        for measure, value in ((WORK_DONE, work.done), (WORK_TOTAL, work.total)):
            yield measure.now({(w,): value if w == work.work else 0 for w in (ALIGNING, READING)})
        yield CHECKPOINT.now(max(progress.checkpoints, default=0))
        yield GENERATION.now(progress.generation)
        members = progress.members
        yield MEMBER.now({(name,): name in members for name in supervisor.roster})
        yield from availability(progress.samples.total, progress.samples.by_client)

    def _frames(self) -> Iterator[Metric]:
        progress = self.supervisor.progress
        yield STREAM_UP.now({(name,): up for name, up in progress.streams_up.items()})
        for measure, reasons, counts in (
            (DROPPED, DROPPED_FOR, progress.dropped_ever),
            (OFFENDED, OFFENCES, progress.offences_ever),
        ):
            known = {reason: counts[reason] for reason in (*reasons, *counts)}
            yield measure.now({(r.replace(" ", "_"),): num for r, num in known.items()})

    def _served(self) -> Iterator[Metric]:
        current = self.serving.current
        yield MODEL_AT.now(current.model.trained_at if current else None)
        yield HELD.now(len(current.row_index) if current else 0)
        accounts = dict(self.serving.accounts)
        for measure, name in (
            (QUESTIONS, "num_requests"),
            (LIMITED, "num_refused"),
            (ASKED, "num_ids_asked"),
            (SERVED, "num_ids_served"),
        ):
            yield measure.now({(peer,): getattr(a, name) for peer, a in accounts.items()})

    def _asked(self) -> Iterator[Metric]:
        peers = self.serving.peers
        yield PEER_UP.now({(name,): not a.breaker.is_open for name, a in peers.items()})
        yield WANTED.now({(name,): a.num_wanted for name, a in peers.items()})
        yield HAD.now({(name,): a.num_available for name, a in peers.items()})
