"""The wire between clients in one process."""

import pytest

from laser_vfl.client.alignment import curve as curve_module
from laser_vfl.client.alignment import ring as ring_module
from tests.support.fakes.local_ring import Wire


@pytest.fixture
def wire(monkeypatch):
    """A wire without sockets, and short messages, so that lists have several."""
    for module in (curve_module, ring_module):
        monkeypatch.setattr(module, "POINTS_AT_ONCE", 4)
    return Wire(monkeypatch)
