"""What a client's metrics page says of how things are at the moment when it is read."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.client.participation import Participation
from laser_vfl.client.serving import Serving
from laser_vfl.client.session import Session
from laser_vfl.wire.measures import GENERATION, MEMBER, Measure, availability

ACTIVITIES = {
    "starting": "starting",
    "idle": "idle",
    "gathering": "gathering",
    "aligning": "aligning",
    "training": "training",
    "waiting for the others to finish": "finishing",
}
UNABLE = "unable"
"""The next run is wanted, and the tables or a limit do not allow it."""

DROPPED_FOR = ("old generation", "repeated", "earlier life", "other run")
OFFENCES = (
    "oversize frame",
    "no frame",
    "false name",
    "useless frames",
    "unfit numbers",
    "misshapen",
)

COORDINATOR_UP = Measure(
    "laser_vfl_coordinator_up", "gauge", "Whether this client is in touch with the coordinator"
)
ACTIVITY = Measure(
    "laser_vfl_activity",
    "gauge",
    "What this client does now: 1 for that, 0 for all else that it could do",
    ("activity",),
)
RUN_STEP = Measure(
    "laser_vfl_run_next_step",
    "gauge",
    "The first step of the run under way that is not done, evaluation counted on; 0 without a run",
)
RUN_STEPS = Measure(
    "laser_vfl_run_steps", "gauge", "Steps of the run under way, evaluation counted in"
)
CHECKPOINT = Measure(
    "laser_vfl_checkpoint_step", "gauge", "The step of the latest checkpoint here; 0 without one"
)
STREAM_UP = Measure(
    "laser_vfl_peer_stream_up",
    "gauge",
    "Whether there is a stream to a member of the run under way",
    ("peer",),
)
DROPPED = Measure(
    "laser_vfl_frames_dropped_total", "counter", "Frames of peers that were dropped", ("reason",)
)
OFFENDED = Measure(
    "laser_vfl_offences_total", "counter", "How often peers broke the contract", ("reason",)
)
MODEL_AT = Measure(
    "laser_vfl_model_trained_timestamp_seconds",
    "gauge",
    "When the model that is served was trained, in Unix time; absent without one",
)
HELD = Measure(
    "laser_vfl_held_samples", "gauge", "Samples that this client can answer for with that model"
)
PEER_UP = Measure(
    "laser_vfl_peer_available",
    "gauge",
    "Whether a peer is asked for its block in predictions (1), or left alone (0)",
    ("peer",),
)
WANTED = Measure(
    "laser_vfl_prediction_blocks_wanted_total",
    "counter",
    "Samples for whose predictions the block of a peer was wanted",
    ("block",),
)
HAD = Measure(
    "laser_vfl_prediction_blocks_available_total",
    "counter",
    "Samples for whose predictions it came in time",
    ("block",),
)
QUESTIONS = Measure(
    "laser_vfl_peer_questions_total", "counter", "Questions of a peer that predicts", ("peer",)
)
LIMITED = Measure(
    "laser_vfl_peer_questions_refused_total",
    "counter",
    "Questions above the limits of serving.requests_per_s and serving.samples_per_s",
    ("peer",),
)
ASKED = Measure(
    "laser_vfl_peer_samples_asked_total", "counter", "Samples in these questions", ("peer",)
)
SERVED = Measure(
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
class Gauges(Collector):
    """Reads what the daemon keeps anyway."""

    participation: Participation
    serving: Serving
    session: Session

    def collect(self) -> Iterator[Metric]:
        """Return all of it."""
        yield from self._run()
        yield from self._frames()
        yield from self._served()
        yield from self._asked()

    def _run(self) -> Iterator[Metric]:
        participation, progress = self.participation, self.session.progress
        now = ACTIVITIES.get(participation.activity, UNABLE)
        yield COORDINATOR_UP.now(self.session.in_touch)
        yield ACTIVITY.now({(name,): name == now for name in (*ACTIVITIES.values(), UNABLE)})
        yield RUN_STEP.now(participation.next_step)
        yield RUN_STEPS.now(participation.num_steps)
        yield CHECKPOINT.now(max(progress.checkpoints, default=0))
        yield GENERATION.now(progress.generation)
        members = progress.members
        yield MEMBER.now({(name,): name in members for name in participation.roster})
        yield from availability(progress.samples.total, progress.samples.by_client)

    def _frames(self) -> Iterator[Metric]:
        progress = self.session.progress
        streams = progress.links.are_up() if progress.links else {}
        yield STREAM_UP.now({(name,): up for name, up in streams.items()})
        for measure, reasons, counts in (
            (DROPPED, DROPPED_FOR, progress.dropped_ever),
            (OFFENDED, OFFENCES, progress.offences_ever),
        ):
            known = {reason: counts[reason] for reason in (*reasons, *counts)}
            yield measure.now({(r.replace(" ", "_"),): num for r, num in known.items()})

    def _served(self) -> Iterator[Metric]:
        edition = self.serving.current
        yield MODEL_AT.now(edition.model.trained_at if edition else None)
        yield HELD.now(len(edition.holdings) if edition else 0)
        accounts = dict(self.serving.accounts.by_peer)
        for measure, name in (
            (QUESTIONS, "num_requests"),
            (LIMITED, "num_refused"),
            (ASKED, "num_ids_asked"),
            (SERVED, "num_ids_served"),
        ):
            yield measure.now({(peer,): getattr(a, name) for peer, a in accounts.items()})

    def _asked(self) -> Iterator[Metric]:
        askers = self.serving.askers
        yield PEER_UP.now({(name,): not a.breaker.is_open for name, a in askers.items()})
        yield WANTED.now({(name,): a.num_wanted for name, a in askers.items()})
        yield HAD.now({(name,): a.num_available for name, a in askers.items()})
