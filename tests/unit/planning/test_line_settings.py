"""What a plan recommends for a line: fewer bytes a number, and batches worth their round trip."""

import pytest

from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.expected_groups import drawn_groups
from laser_vfl.planning.forecast import Compute, PlannedFederation
from laser_vfl.planning.line_settings import FEWEST_STEPS, settings_for_line

SLOW = NetworkLine(6.25e6, 0.05)
NARROW = NetworkLine(125_000.0, 0.02)
FAST = NetworkLine(1.25e9, 0.0001)
COMPUTE = Compute(0.003)


def federation(num=20_000, **settings):
    chosen = {"representation_dim": 128, "batch_size": 128, "epochs": 2, **settings}
    roster = ("bank", "shop")
    return PlannedFederation(
        TrainingSettings(**chosen), roster, roster, drawn_groups(num, [0.0, 0.0])
    )


def test_a_slow_line_gets_small_numbers_and_larger_batches():
    found = settings_for_line(federation(), SLOW, COMPUTE)
    assert found.training == {"wire_precision": "int4", "batch_size": 512}
    assert found.rate_factor == 4
    step = found.forecast.training
    assert (step.compute_s + step.bandwidth_s) / step.num_steps <= SLOW.rtt_s / 2
    assert step.step_s == pytest.approx(
        (step.compute_s + step.bandwidth_s) / step.num_steps + SLOW.rtt_s
    )


def test_a_narrow_line_gets_no_larger_batches():
    found = settings_for_line(federation(), NARROW, COMPUTE)
    assert found.training == {"wire_precision": "int4"}
    assert found.rate_factor == 1


def test_a_fast_line_needs_no_other_settings():
    assert settings_for_line(federation(), FAST, COMPUTE) is None


def test_few_samples_keep_enough_steps():
    found = settings_for_line(federation(num=128 * 2 * FEWEST_STEPS), SLOW, COMPUTE)
    assert found.training["batch_size"] == 256
    assert found.forecast.steps_per_epoch == FEWEST_STEPS


def test_masked_gradients_are_not_rounded_to_small_integers():
    found = settings_for_line(federation(masked_gradients=True), NARROW, COMPUTE)
    assert found.training["wire_precision"] == "bfloat16"


def test_a_precision_that_was_chosen_is_kept():
    found = settings_for_line(federation(wire_precision="int8"), SLOW, COMPUTE)
    assert set(found.training) == {"batch_size"}


def test_nothing_is_recommended_where_nothing_is_sent():
    assert settings_for_line(federation(method="local"), SLOW, COMPUTE) is None
