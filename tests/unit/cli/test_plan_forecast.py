"""What a plan counts is what clients send, frame by frame, for every method."""

import asyncio
from dataclasses import replace

import pytest

from laser_vfl.cli.plan_clocks import Line
from laser_vfl.cli.plan_compute import invented
from laser_vfl.cli.plan_forecast import Compute, Federation, forecast
from laser_vfl.cli.plan_groups import drawn_groups
from laser_vfl.cli.plan_practice import practice
from laser_vfl.cli.plan_walk import Walk, alignments_of, labelled_mask
from laser_vfl.client.federating import federate_step
from laser_vfl.client.training import train_step
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.timeline import Timeline
from laser_vfl.wire.overhead import tcp_bytes

ROSTER = ("bank", "shop", "telco")
LINE = Line(12.5e6, 0.02)
COMPUTE = Compute(0.008)


def federation(labels=ROSTER, roster=ROSTER, p=0.3, num=60, **settings):
    chosen = {"representation_dim": 8, "batch_size": 16, "epochs": 2, "seed": 5, **settings}
    groups = drawn_groups(num, [p] * len(roster))
    return Federation(TrainingSettings(**chosen), tuple(roster), tuple(labels), groups)


async def sent_by(client, config, planned):
    """Have a client do all steps of its training; return what it sends, over TCP."""
    exchange, mail = practice(config, planned, planned.groups)
    learner, timeline = (
        exchange.learner,
        Timeline(planned.settings, planned.groups, len(planned.roster)),
    )
    for number in range(timeline.num_steps):
        moment = timeline.moment(number)
        if moment.chunk is not None:
            federate_step(exchange, moment.chunk, number, learner.place.everyone, bytes(32))
        elif moment.stage == "training":
            plan = learner.plan(moment.step, exchange.alignment, learner.place.everyone)
            if plan is not None:
                train_step(exchange, plan, 0.0)
    await asyncio.sleep(0)
    return sorted((peer, tcp_bytes(length)) for peer, length in mail.links.lengths)


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
    walk = Walk(planned.settings, roster, labelled_mask(planned.labels, roster))
    timeline = Timeline(planned.settings, planned.groups, len(roster))
    alignments = alignments_of(planned.groups, len(roster))
    expected = [[] for _ in roster]
    for number in range(timeline.num_steps):
        for one in walk.moment(timeline.moment(number), number, alignments):
            for message in one.messages:
                expected[message.sender].append((message.receiver, message.tcp_bytes))
    for client, name in enumerate(roster):
        config = invented(tmp_path, name, 4)
        assert asyncio.run(sent_by(client, config, planned)) == sorted(expected[client])


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
    timeline = Timeline(planned.settings, planned.groups, 3)
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
