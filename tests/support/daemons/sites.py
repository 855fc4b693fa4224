"""What tests with real processes share: an authority, a place for a federation, logs on failure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.daemons.harness import Authority, Site

# Daemons of tests compute with one thread, and the oracle has to round as they do.
torch.set_num_threads(1)

_SITES = pytest.StashKey[list[Site]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SITES] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Show what every daemon said when a test fails."""
    report = yield
    if report.failed:
        for site in item.config.stash[_SITES]:
            report.sections.append((f"daemons in {site.path}", site.report()))
    return report


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that all daemons of a test trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def site(tmp_path: Path, authority: Authority, pytestconfig: pytest.Config) -> Iterator[Site]:
    """A federation with mTLS, ended after the test."""
    yield from ended(Site(tmp_path, authority), pytestconfig)


@pytest.fixture
def plain_site(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Site]:
    """A federation in plaintext."""
    yield from ended(Site(tmp_path, None), pytestconfig)


@pytest.fixture(scope="module")
def shared_site(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, pytestconfig: pytest.Config
) -> Iterator[Site]:
    """A federation with mTLS for all tests of a module."""
    yield from ended(Site(tmp_path_factory.mktemp("shared"), authority), pytestconfig)


def ended(site: Site, config: pytest.Config) -> Iterator[Site]:
    """Yield a site, show its logs when a test fails meanwhile, and end it."""
    sites = config.stash[_SITES]
    sites.append(site)
    with site:
        yield site
    sites.remove(site)
