"""The coordinator says when masks can hide little or nothing."""

from types import SimpleNamespace

import pytest

from laser_vfl.coordinator.daemon import _warn_of_few_heads
from laser_vfl.coordinator.run import Run


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        (("bank",), "hides nothing at all: only 1 of the clients has labels"),
        (("bank", "shop"), "hides nothing between clients with labels: only 2 of the clients have"),
        (("bank", "shop", "club"), ""),
    ],
)
def test_few_heads(heads, said, caplog):
    membership = SimpleNamespace(view=SimpleNamespace(heads=heads))
    _warn_of_few_heads(Run("run", ("bank", "shop", "club"), 0, {}, membership))
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)
