"""The wire between clients in one process."""

import pytest
from client_ring import Wire

from laser_vfl.client import ring as ring_module


@pytest.fixture
def wire(monkeypatch):
    """A wire without sockets, and short messages, so that lists have several."""
    monkeypatch.setattr(ring_module, "POINTS_AT_ONCE", 4)
    return Wire(monkeypatch)
