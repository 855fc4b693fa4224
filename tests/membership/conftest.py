"""Tests without schedules of their own run with the first schedules only, and not again later."""

from pathlib import Path

import pytest
from test_membership_simulated import FIRST

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave those out where LASER_VFL_SCHEDULES begins later than the first schedule."""
    repeated = [item for item in items if FIRST > 0 and _has_no_schedules(item)]
    items[:] = [item for item in items if item not in repeated]
    config.hook.pytest_deselected(items=repeated)


def _has_no_schedules(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return HERE in item.path.parents and (callspec is None or "first" not in callspec.params)
