"""What all fuzz targets need: quiet logs, and one thread for each library."""

import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> Iterator[None]:
    """A reader that logs what it refuses would do so thousands of times."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
