"""Gradients that no mask hides are told of, for whoever takes part."""

import logging

import pytest

from laser_vfl.client.training.trainer import UnmaskedRows
from laser_vfl.core.alignment import Group
from laser_vfl.core.training.learner import FederationContext
from laser_vfl.methods.training_settings import TrainingSettings

ROSTER = ("bank", "shop", "telco", "clinic")
GROUPS = (Group(0b0111, 6), Group(0b1111, 3), Group(0b1001, 2), Group(0b0110, 5))
"""The bank's are the first three; the clinic has no labels."""

SETTINGS = TrainingSettings(representation_dim=2, batch_size=4, epochs=1, masked_gradients=True)


@pytest.fixture
def rows() -> UnmaskedRows:
    context = FederationContext(client=0, num_clients=4, heads=0b0111, settings=SETTINGS)
    return UnmaskedRows(GROUPS, context, ROSTER)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_a_member_that_is_left_out_takes_masks_along(
    rows: UnmaskedRows, caplog: pytest.LogCaptureFixture
) -> None:
    rows.look(0b1111)
    (first,) = warnings(caplog)
    assert "for 2 of 11 shared rows" in first

    rows.look(0b1011)
    (then,) = warnings(caplog)
    assert "for 11 of 11 shared rows" in then
    assert "bank, shop, clinic take part now" in then


def test_it_is_told_once_for_each_set_of_members(
    rows: UnmaskedRows, caplog: pytest.LogCaptureFixture
) -> None:
    rows.look(0b0111)
    assert not warnings(caplog)
    for _ in range(3):
        rows.look(0b0011)
    assert len(warnings(caplog)) == 1
    rows.look(0b0111)
    assert not warnings(caplog)
    rows.look(0b0011)
    assert len(warnings(caplog)) == 1


def test_alone_nobody_gets_anything(rows: UnmaskedRows, caplog: pytest.LogCaptureFixture) -> None:
    rows.look(0b0001)
    assert not warnings(caplog)
