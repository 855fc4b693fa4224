"""The coordinator says when masks can hide little or nothing."""

from types import SimpleNamespace

import pytest

from laser_vfl.coordinator.daemon import FewHeadsWarning
from laser_vfl.coordinator.rules.run import Run


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        (("bank",), "hides nothing at all: only 1 of the clients has labels"),
        (("bank", "shop"), "hides nothing between clients with labels: only 2 of the clients have"),
        (("bank", "shop", "club"), ""),
    ],
)
def test_few_heads(heads, said, caplog):
    membership = SimpleNamespace(num_heads=len(heads))
    run = Run("run", ("bank", "shop", "club"), 0, {}, membership)
    FewHeadsWarning().happened("started", run, "")
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)
