"""Rules for all tests: repeatable examples, and tests that share daemons stay in one worker."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A failure of a property test is a change in the code, not luck.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadscope`: a scope is what shares daemons, and otherwise a single test."""
    from xdist.scheduler import LoadScopeScheduling

    class ByDaemons(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _shared(config.rootpath / nodeid.split("::")[0]) or nodeid

    return ByDaemons(config, log) if config.getoption("dist") == "loadscope" else None


@cache
def _shared(path: Path) -> str:
    """Name what the tests of a file share with each other, or with other files."""
    text = path.read_text()
    if "attacked_federation" in text:
        return "attacked_federation"
    return str(path) if 'scope="module"' in text or "shared_site" in text else ""
