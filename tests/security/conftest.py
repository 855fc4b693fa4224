"""Attacks share an authority, places for federations, logs on failure, and a record of results."""

from collections.abc import Iterator

import pytest
from fortress import Fortress, build
from results import Results
from sites import (  # noqa: F401
    authority,
    ended,
    plain_site,
    pytest_configure,
    pytest_runtest_makereport,
    shared_site,
    site,
)


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    """What came of each attack; kept for `write_table.py`."""
    found = Results()
    yield found
    if found.by_name:
        found.keep()


@pytest.fixture(scope="session")
def fortress(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Fortress]:
    """A federation that serves, for all attacks of a worker."""
    found = build(tmp_path_factory.mktemp("fortress"))
    for _ in ended(found.federation.site, pytestconfig):
        yield found
