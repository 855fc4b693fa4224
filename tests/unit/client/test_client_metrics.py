"""What a client counts of its steps and predictions."""

from collections import Counter
from types import SimpleNamespace

import pytest

from laser_vfl.client import client_metrics as module
from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.run.activity import TRAINING, Activity, CurrentActivity
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.status_gauges import StatusGauges
from laser_vfl.core.availability import SampleCounts
from laser_vfl.v1 import coordinator_pb2
from laser_vfl.v1 import peer_pb2 as pb


class Clock:
    now = 50.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def told(collector):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def phases(meters):
    found = told(meters)
    name = "laser_vfl_step_phase_seconds_total"
    return {key[1]: value for key, value in found.items() if key[0] == name}


def waits(meters, clock, kind, seconds):
    with meters.waiting(kind):
        clock.now += seconds


def test_a_step_is_computing_and_waiting(clock):
    meters = ClientMetrics()
    waits(meters, clock, pb.FRAME_KIND_EVALUATION, 9.0)  # before the first step
    for _ in range(2):
        meters.step_begins()
        waits(meters, clock, pb.FRAME_KIND_REPRESENTATION, 0.25)
        waits(meters, clock, pb.FRAME_KIND_GRADIENT, 0.5)
        waits(meters, clock, pb.FRAME_KIND_EVALUATED, 0.125)
        meters.step_done(1.0)
    assert phases(meters) == {
        "compute": 0.25,
        "wait_representations": 0.5,
        "wait_gradients": 1.0,
        "wait_other": 0.25,
    }
    assert told(meters)["laser_vfl_steps_total",] == 2
    assert told(meters)["laser_vfl_step_seconds_sum",] == 2.0


def test_a_step_that_is_dropped_has_no_time(clock):
    meters = ClientMetrics()
    meters.step_begins()
    waits(meters, clock, pb.FRAME_KIND_GRADIENT, 5.0)
    meters.steps_dropped(1)
    meters.step_begins()
    meters.step_done(1.0)
    meters.step_skipped()
    found = told(meters)
    assert phases(meters) == {
        "compute": 1.0,
        "wait_representations": 0.0,
        "wait_gradients": 0.0,
        "wait_other": 0.0,
    }
    names = ("steps", "steps_redone", "steps_skipped")
    assert [found[f"laser_vfl_{name}_total",] for name in names] == [1, 1, 1]


def test_there_is_no_loss_without_a_head():
    meters = ClientMetrics()
    meters.trained(0, None)
    assert ("laser_vfl_loss",) not in told(meters)
    meters.trained(3, 0.5)
    assert told(meters)["laser_vfl_loss",] == 0.5
    assert told(meters)["laser_vfl_epoch",] == 3


def test_predictions_are_told_by_their_number_of_blocks():
    meters = ClientMetrics()
    meters.predicted(Counter({0b101: 4, 0b110: 1, 0b111: 2}), 3, 0.02)
    meters.predicted(Counter({0b100: 5}), 0, 0.03)
    found = told(meters)
    counts = {key[1]: v for key, v in found.items() if key[0] == "laser_vfl_predictions_total"}
    assert counts == {"1": 5, "2": 5, "3": 2}
    assert found["laser_vfl_prediction_errors_total",] == 3
    assert found["laser_vfl_prediction_requests_total",] == 2
    assert found["laser_vfl_prediction_seconds_count",] == 2


class Mesh:
    def __init__(self):
        self.dropped, self.offences = Counter(), Counter()

    def are_up(self):
        return {"shop": True, "telco": False}


def gauges(progress, **more):
    participation = SimpleNamespace(
        **{
            "now": TRAINING,
            "progress": progress,
            "next_step": 7,
            "num_steps": 20,
            "roster": ("bank", "shop", "telco"),
            **more,
        }
    )
    serving = SimpleNamespace(current=None, accounts={}, peers={})
    session = SimpleNamespace(in_touch=True)
    return told(StatusGauges(participation, serving, session))


def test_counts_of_frames_go_on_over_runs():
    progress, mesh = Progress(), Mesh()
    progress.begin_run(("bank", "shop"), 20, 5, SampleCounts())
    progress.use(mesh)
    mesh.dropped["old generation"] += 2
    mesh.offences["misshapen"] += 1
    progress.use(None)
    progress.begin_run(("bank", "shop"), 20, 5, SampleCounts())
    progress.use(again := Mesh())
    again.dropped["old generation"] += 3
    assert progress.dropped == {"old generation": 3}
    found = gauges(progress)
    assert found["laser_vfl_frames_dropped_total", "old_generation"] == 5
    assert found["laser_vfl_frames_dropped_total", "repeated"] == 0
    assert found["laser_vfl_offences_total", "misshapen"] == 1
    assert found["laser_vfl_peer_stream_up", "telco"] == 0


def test_how_things_are_in_a_run():
    progress = Progress()
    samples = SampleCounts(10, {"bank": 5, "shop": 1, "telco": 10})
    progress.begin_run(("bank", "shop", "telco"), 20, 5, samples)
    progress.begin_view(3, ("bank", "telco"))
    progress.holds((100, 200))
    found = gauges(progress)
    assert found["laser_vfl_view_generation",] == 3
    assert [found["laser_vfl_view_member", name] for name in ("bank", "shop", "telco")] == [1, 0, 1]
    assert found["laser_vfl_block_availability_ratio", "shop"] == 0.1
    assert (found["laser_vfl_run_next_step",], found["laser_vfl_run_steps",]) == (7, 20)
    assert found["laser_vfl_checkpoint_step",] == 200
    assert found["laser_vfl_held_samples",] == 0
    assert ("laser_vfl_model_trained_timestamp_seconds",) not in found


@pytest.mark.parametrize("activity", Activity)
def test_one_activity_is_on(activity):
    found = gauges(Progress(), now=CurrentActivity(activity, "whatever it says to people"))
    shares = {key[1]: v for key, v in found.items() if key[0] == "laser_vfl_activity"}
    assert [name for name, value in shares.items() if value] == [activity.value]
    assert len(shares) == len(Activity)


def test_people_are_told_of_training_steps_alone():
    progress, heartbeat = Progress(), coordinator_pb2.Heartbeat()
    progress.begin_run(("bank", "shop"), 20, 5, SampleCounts())
    progress.reached(7)
    assert (progress.num_trained, progress.num_steps) == (7, 20)
    progress.reached(22)  # an evaluation
    progress.describe(heartbeat)
    assert (heartbeat.next_step, heartbeat.num_steps) == (22, 20)
    assert progress.num_trained == 20
    progress.finished()
    assert (progress.next_step, progress.num_trained) == (25, 20)
