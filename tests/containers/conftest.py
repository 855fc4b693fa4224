"""One engine and one build of the images for all tests with containers."""

from collections.abc import Iterator

import pytest
from engine import ROOT, Engine, NoEngine, open_engine

from tests.support.daemons.sites import plain_site, pytest_configure, pytest_runtest_makereport  # noqa: F401

BUILD_S = 900


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine with nothing built; it is stopped at the end if it was not up before."""
    try:
        engine = open_engine()
    except NoEngine as reason:
        pytest.skip(str(reason))
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def built(engine: Engine) -> Engine:
    """The engine with the images of this checkout."""
    compose = ["docker", "compose", "-f", str(ROOT / "deploy" / "compose.yaml")]
    engine.run([*compose, "build", "--quiet", "coordinator", "certs"], timeout_s=BUILD_S)
    return engine
