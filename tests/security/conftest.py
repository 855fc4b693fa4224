"""Attacks share an authority, places for federations, logs on failure, and a record of results."""

from collections.abc import Iterator

import pytest
from attacked_federation import AttackedFederation, build

from tests.support.attacks.attack_results import Results
from tests.support.daemons.sites import (  # noqa: F401
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
def attacked(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[AttackedFederation]:
    """A federation that serves, for all attacks of a worker."""
    found = build(tmp_path_factory.mktemp("attacked"))
    for _ in ended(found.federation.site, pytestconfig):
        yield found
