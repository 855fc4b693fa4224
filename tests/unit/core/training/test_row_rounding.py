"""Rows of integers: unbiased, within one step of their scale, and the same whenever recomputed."""

import numpy as np
import pytest
import torch

from laser_vfl.core.randomness import RandomStream
from laser_vfl.core.training.gradients import Thresholds, crossing
from laser_vfl.core.training.row_rounding import INT4, LEVELS, RowRounding, rounded

STREAM = RandomStream.ROUNDED_REPRESENTATIONS


def thresholds(num_rows, width, *, step=3, seed=7, sender=1):
    return RowRounding(seed, step).thresholds(sender, STREAM, num_rows, width)


def rows_of(num_rows=40, width=33, scale=1.0):
    rng = np.random.default_rng(5)
    return (rng.standard_normal((num_rows, width)) * scale).astype(np.float32)


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e15])
def test_no_number_is_off_by_more_than_a_step_of_its_scale(dtype, scale):
    rows = rows_of(scale=scale)
    got = rounded(rows, dtype, thresholds(*rows.shape).numpy()).restored()
    step = np.abs(rows).max(axis=1, keepdims=True) / LEVELS[dtype] * (1 + 2**-7)
    assert (np.abs(got - rows) <= step).all()


@pytest.mark.parametrize("dtype", LEVELS)
def test_the_nearest_integer_without_thresholds(dtype):
    rows = rows_of()
    got = rounded(rows, dtype).restored()
    step = np.abs(rows).max(axis=1, keepdims=True) / LEVELS[dtype] * (1 + 2**-7)
    assert (np.abs(got - rows) <= step / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("dtype", LEVELS)
def test_the_mean_of_many_steps_is_the_number_itself(dtype):
    row = rows_of(1, 16)
    num = 4000
    got = np.mean(
        [rounded(row, dtype, thresholds(1, 16, step=t).numpy()).restored() for t in range(num)],
        axis=0,
    )
    step = np.abs(row).max() / LEVELS[dtype]
    assert np.abs(got - row).max() < 5 * step / 2 / np.sqrt(num)


def test_thresholds_are_a_function_of_seed_step_sender_and_kind():
    first = thresholds(3, 5)
    assert torch.equal(first, thresholds(3, 5))
    assert 0 < first.min() < first.max() < 1
    for other in (thresholds(3, 5, step=4), thresholds(3, 5, seed=8), thresholds(3, 5, sender=2)):
        assert not torch.equal(first, other)
    gradients = RowRounding(7, 3).thresholds(1, RandomStream.ROUNDED_GRADIENTS, 3, 5)
    assert not torch.equal(first, gradients)


@pytest.mark.parametrize("dtype", LEVELS)
def test_zeros_and_what_is_too_small_travel_as_zeros(dtype):
    rows = np.zeros((3, 4), dtype=np.float32)
    rows[1, 2], rows[2, 0] = 1e-40, -1.0
    got = rounded(rows, dtype, thresholds(3, 4).numpy()).restored()
    assert not got[:2].any()
    assert got[2].tolist() == pytest.approx([-1, 0, 0, 0], abs=1 / LEVELS[dtype])


def test_a_row_does_not_depend_on_the_others_in_its_frame():
    rows, drawn = rows_of(), thresholds(40, 33).numpy()
    whole = rounded(rows, INT4, drawn).restored()
    assert np.array_equal(rounded(rows[5:9], INT4, drawn[5:9]).restored(), whole[5:9])


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_gradients_come_back_rounded_by_thresholds_of_their_own(precision):
    rows = torch.from_numpy(rows_of(4, 6)).requires_grad_()
    there, back = thresholds(4, 6, sender=0), thresholds(4, 6, sender=1)
    seen = crossing(rows, precision, thresholds=Thresholds(there, back))
    gradient = torch.from_numpy(rows_of(4, 6, scale=0.1))
    seen.backward(gradient)
    dtype = {"int8": torch.int8, "int4": INT4}[precision]
    assert np.array_equal(
        seen.detach().numpy(), rounded(rows.detach().numpy(), dtype, there.numpy()).restored()
    )
    assert np.array_equal(
        rows.grad.numpy(), rounded(gradient.numpy(), dtype, back.numpy()).restored()
    )
