"""Random numbers that models draw themselves: initial parameters, dropout, augmentation.

Layers draw them from torch's global generator and take no other. Several clients may train in one
process, each in a thread of its own. So whoever builds or runs models takes that generator for as
long as it does, one thread at a time, and seeds it from the client's own stream.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from laser_vfl.core.randomness import RandomStream, torch_seed

_TAKEN = threading.RLock()


class LayerRandomness:
    """What one client's layers draw from; nobody else's draws change it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.state = torch.Generator().get_state()
        """Where the last forward pass has left it."""

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Run a forward pass under this, so that what its layers draw is a function of the seed."""
        with _TAKEN:
            # torch.manual_seed records a traceback each time where there is no GPU: 1 ms.
            torch.default_generator.manual_seed(seed)
            if self._device.type == "cuda":
                torch.cuda.manual_seed(seed)
            try:
                yield
            finally:
                self.state = torch.default_generator.get_state()


@contextmanager
def borrowed_generator() -> Iterator[None]:
    """Build or try models under this, so that it changes nobody's random numbers."""
    with _TAKEN, torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def initial_randomness(seed: int, client: int) -> Iterator[None]:
    """Build models under this, so that a client's initial parameters depend on nothing else."""
    with borrowed_generator():
        torch.manual_seed(
            torch_seed(seed=seed, stream=RandomStream.INITIAL_PARAMETERS, client=client)
        )
        yield
