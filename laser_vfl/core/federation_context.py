"""Where a client stands in its federation: all that its randomness and its weights depend on."""

from dataclasses import dataclass

from laser_vfl.core.alignment import Group
from laser_vfl.core.settings import AlgorithmSettings


@dataclass(frozen=True)
class FederationContext:
    """One client of the roster, the clients that predict, and the settings of all of them."""

    client: int
    num_clients: int
    heads: int
    settings: AlgorithmSettings
    groups: tuple[Group, ...] = ()
    """Of the training tables; they say how often a subset of blocks is observed."""

    @property
    def everyone(self) -> int:
        """The mask of the whole roster."""
        return (1 << self.num_clients) - 1
