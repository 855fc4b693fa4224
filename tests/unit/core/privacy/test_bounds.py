"""Which rows may be sent and which may be used, and that an honest sender is never blamed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.core.privacy.bounds import Bounds

BOUNDS = Bounds(100.0, torch.float32)


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_rows_within_bounds_are_fit() -> None:
    assert BOUNDS.unfit_to_send(rows([60, 80], [0, 0])) is None
    assert BOUNDS.unfit_to_use(rows([60, 80], [0, 0])) is None


def test_many_rows_may_be_longer_together_than_each_of_them() -> None:
    assert BOUNDS.unfit_to_use(rows(*[[60, 80]] * 50)) is None


@pytest.mark.parametrize(
    "bad", [[80, 80], [np.nan, 0], [np.inf, 0], [-np.inf, 0], [np.inf, -np.inf], [3e38, 3e38]]
)
def test_the_rows_that_are_not_are_named(bad: list[float]) -> None:
    for unfit in (BOUNDS.unfit_to_send, BOUNDS.unfit_to_use):
        found = unfit(rows([1, 1], bad, [2, 2]))
        assert found is not None
        assert found.tolist() == [False, True, False]


def test_what_float16_cannot_hold_is_not_sent() -> None:
    narrow, wide = Bounds(1e6, torch.float16), Bounds(1e6, torch.bfloat16)
    assert narrow.unfit_to_send(rows([65504, 65504])) is None
    found = narrow.unfit_to_send(rows([65520, 0], [1, 0]))
    assert found is not None
    assert found.tolist() == [True, False]
    assert wide.unfit_to_send(rows([65520, 0])) is None


def test_nothing_is_fit() -> None:
    assert BOUNDS.unfit_to_use(np.empty((0, 3), dtype=np.float32)) is None


@given(
    st.lists(st.floats(-2e6, 2e6, width=32), min_size=3, max_size=3),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_what_a_sender_may_send_its_receiver_may_use(
    values: list[float], dtype: torch.dtype
) -> None:
    bounds, sent = Bounds(1e6, dtype), rows(values, [0, 0, 0])
    if bounds.unfit_to_send(sent) is None:
        come = torch.from_numpy(sent).to(dtype).float().numpy()
        assert bounds.unfit_to_use(come) is None
