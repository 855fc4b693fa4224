"""Tests against real processes share an authority, a place for a federation, and logs."""

from tests.support.daemons.sites import (  # noqa: F401
    authority,
    plain_site,
    pytest_configure,
    pytest_runtest_makereport,
    shared_site,
    site,
)
