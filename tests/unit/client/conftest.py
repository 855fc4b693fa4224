"""The wire between clients in one process."""

import pytest
from client_ring import Wire

from laser_vfl.client import curve as curve_module
from laser_vfl.client import ring as ring_module


@pytest.fixture
def wire(monkeypatch):
    """A wire without sockets, and short messages, so that lists have several."""
    for module in (curve_module, ring_module):
        monkeypatch.setattr(module, "POINTS_AT_ONCE", 4)
    return Wire(monkeypatch)
