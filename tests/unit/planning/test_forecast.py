"""What a plan counts is what clients send, frame by frame, for every method."""

from dataclasses import replace

import pytest

from laser_vfl.client.training.preparation_step import exchange_step
from laser_vfl.client.training.training_step import train_step
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.expected_groups import drawn_groups
from laser_vfl.planning.forecast import Compute, PlannedFederation, forecast
from laser_vfl.planning.measured_compute import write_random_client
from laser_vfl.planning.offline_training import offline_step_context
from laser_vfl.planning.step_rounds import StepRounds, alignments_of, labelled_mask
from laser_vfl.transport.frame_overhead import tcp_bytes

ROSTER = ("bank", "shop", "telco")
LINE = NetworkLine(12.5e6, 0.02)
COMPUTE = Compute(0.008)


def federation(labels=ROSTER, roster=ROSTER, p=0.3, num=60, **settings):
    chosen = {"representation_dim": 8, "batch_size": 16, "epochs": 2, "seed": 5, **settings}
    groups = drawn_groups(num, [p] * len(roster))
    return PlannedFederation(TrainingSettings(**chosen), tuple(roster), tuple(labels), groups)


def timeline_of(planned):
    preparation = method_named(planned.settings.method).preparation
    return Timeline(preparation, planned.settings, planned.groups, len(planned.roster))


def sent_by(config, planned):
    """Have a client do all steps of its training; return what it sends, over TCP."""
    context, frames = offline_step_context(config, planned, planned.groups)
    learner, timeline = context.learner, timeline_of(planned)
    for number in range(timeline.num_steps):
        scheduled = timeline.step(number)
        if scheduled.exchange is not None:
            exchange_step(context, scheduled.exchange, number, learner.context.everyone, bytes(32))
        elif scheduled.kind == "training":
            plan = learner.plan(scheduled.batch, context.alignment, learner.context.everyone)
            if plan is not None:
                train_step(context, plan, 0.0)
    return sorted((peer, tcp_bytes(length)) for peer, length in frames.lengths)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batching": "by_pattern"},
        {"wire_precision": "bfloat16"},
        {"masked_gradients": True},
        {"method": "local"},
        {"method": "standard"},
        {"method": "plug"},
        {"method": "ensemble"},
        {"method": "combinatorial"},
        {"method": "vfedtrans", "distillation_epochs": 1},
        {"labels": ("shop",)},
        {"roster": ("bank", "shop"), "labels": ("bank",)},
        {"roster": ("bank", "shop"), "labels": ("bank",), "method": "vfedtrans"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "laser",
)
def test_frames_are_those_that_clients_send(settings, tmp_path):
    planned = federation(**settings)
    roster = planned.roster
    step_rounds = StepRounds(planned.settings, roster, labelled_mask(planned.labels, roster))
    timeline = timeline_of(planned)
    alignments = alignments_of(planned.groups, len(roster))
    expected = [[] for _ in roster]
    for number in range(timeline.num_steps):
        for one in step_rounds.step(timeline.step(number), number, alignments):
            for message in one.messages:
                expected[message.sender].append((message.receiver, message.tcp_bytes))
    for client, name in enumerate(roster):
        config = write_random_client(tmp_path, name, 4)
        assert sent_by(config, planned) == sorted(expected[client])


def test_totals_are_those_of_all_samples():
    """Each sample crosses once each way between any two that hold it, in every epoch."""
    planned = federation(num=500)
    found = forecast(planned, LINE, COMPUTE)
    pairs = sum(
        g.size * g.observed.bit_count() * (g.observed.bit_count() - 1) for g in planned.groups
    )
    payload = sum(traffic.payload_up for traffic in found.training.traffic)
    assert payload == 2 * pairs * 8 * 4 * planned.settings.epochs
    assert payload == sum(traffic.payload_down for traffic in found.training.traffic)


def test_a_step_of_equals_is_the_formula():
    planned = federation(p=0.0, num=160)
    found = forecast(planned, LINE, COMPUTE).training
    busiest = max(traffic.link_down for traffic in found.traffic) / found.num_steps
    # telco's name is a letter longer, and so are its frames
    assert found.step_s == pytest.approx(0.008 + 0.02 + busiest / 12.5e6)
    parts = (found.compute_s, found.latency_s, found.bandwidth_s)
    assert parts == pytest.approx([0.008 * 20, 0.02 * 20, busiest / 12.5e6 * 20])
    assert sum(parts) == pytest.approx(found.seconds)


def test_methods_that_send_nothing_take_no_more_than_their_computing():
    for method in ("local", "ensemble"):
        found = forecast(federation(method=method, p=0.0), LINE, COMPUTE)
        assert found.seconds == pytest.approx(0.008 * found.training.num_steps)
        assert not any(traffic.frames_up for traffic in found.traffic)


def test_stages_of_vfedtrans_and_an_evaluation():
    planned = federation(method="vfedtrans", distillation_epochs=3)
    found = forecast(planned, LINE, COMPUTE)
    assert [stage.name for stage in found.stages] == ["joint svd", "distillation", "training"]
    timeline = timeline_of(planned)
    assert sum(stage.num_steps for stage in found.stages) == timeline.num_steps
    tested = replace(federation(), test_groups=drawn_groups(40, [0.3] * 3))
    stages = forecast(tested, LINE, COMPUTE).stages
    assert [(stage.name, stage.num_steps) for stage in stages][1:] == [("evaluation", 3)]
    assert stages[1].traffic[0].payload_up > 0


def test_many_samples_are_scaled_up():
    """A hundred times as many samples are a hundred times as much, and walked through in part."""
    few, many = (forecast(federation(num=n), LINE, COMPUTE) for n in (50_000, 5_000_000))
    assert many.training.num_steps == 100 * few.training.num_steps
    assert many.seconds == pytest.approx(100 * few.seconds, rel=0.01)
    ratio = many.traffic[0].link_up / few.traffic[0].link_up
    assert ratio == pytest.approx(100, rel=0.01)


def test_drawn_groups_have_as_many_samples_as_wanted():
    assert sum(group.size for group in drawn_groups(12_345, [0.9, 0.9])) == 12_345
    assert sum(group.size for group in drawn_groups(3_000_001, [0.5] * 4)) == 3_000_001
    assert [(g.observed, g.size) for g in drawn_groups(7, [0.0, 0.0])] == [(3, 7)]
    held = sum(g.size for g in drawn_groups(20_000, [0.2, 0.0]) if g.observed & 1)
    assert held == pytest.approx(16_000, rel=0.02)
