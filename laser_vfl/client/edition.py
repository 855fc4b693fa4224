"""One published model with the rows that it can answer for."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laser_vfl.client.answers import Named, Subject
from laser_vfl.client.batching import Batcher
from laser_vfl.client.digest_index import Digests
from laser_vfl.client.holdings import Holdings
from laser_vfl.client.naming import Naming
from laser_vfl.client.published import PublishedModel
from laser_vfl.core.subsets import has
from laser_vfl.wire.sizes import most_rows

SPREAD_S = 2.0
"""How long it may take until all members have heard of the outcome of an alignment."""


@dataclass
class Edition:
    """What is needed to answer with the model of one run."""

    model: PublishedModel
    holdings: Holdings
    """Replaced when the serving table changes."""
    representation: Batcher
    head: Batcher | None
    naming: Naming | None = None
    """How people are named to peers; None if by digests."""
    older_naming: Naming | None = None
    """The one before, for peers that have not heard of the new one yet."""
    renamed_at: float = -math.inf
    used_at: float = field(default_factory=time.monotonic)

    def rename(self, naming: Naming) -> None:
        """Name people by a newer alignment."""
        self.renamed_at = time.monotonic()
        self.older_naming, self.naming = self.naming, naming

    def forget(self, have: Callable[[Digests], npt.NDArray[np.bool_]]) -> None:
        """Let go of the names of people who are forgotten."""
        for name in ("naming", "older_naming"):
            naming: Naming | None = getattr(self, name)
            if naming is not None:
                setattr(self, name, naming.without(have(naming.digests)))

    def named_to(self, peers: Iterable[str], digests: Digests) -> dict[str, Named]:
        """Name people to peers, to all by the same alignment.

        A new one is used when all have had the time to get it.
        """
        is_young = time.monotonic() < self.renamed_at + SPREAD_S
        naming = self.older_naming if is_young and self.older_naming else self.naming
        if naming is None:
            return dict.fromkeys(peers, Named(digests.tobytes()))
        named = {}
        for peer in peers:
            names, at = naming.names_for(digests, self.model.roster.index(peer))
            named[peer] = Named(names, naming.id, at)
        return named

    def naming_of(self, alignment: str) -> Naming | None:
        """Return the naming by which a peer asks, if it is known here."""
        known = (self.naming, self.older_naming)
        return next((n for n in known if n is not None and n.id == alignment), None)

    @property
    def num_outputs(self) -> int:
        """How many outputs the head has; 0 without one."""
        return self.model.labels.num_outputs if self.model.labels else 0

    @property
    def max_rows(self) -> int:
        """How many samples fit into one question to a peer and its answer."""
        return most_rows(self.model.settings, len(self.model.roster))

    @property
    def subject(self) -> Subject:
        """What peers are asked about."""
        model, settings = self.model, self.model.settings
        width = settings.exchanged_width(len(model.roster))
        return Subject(model.run, width, model.wire_dtype, settings.max_norm)

    @property
    def asked(self) -> list[str]:
        """Whom predictions with this model need."""
        asked = self.model.method.asks(self.model.place)
        return [name for k, name in enumerate(self.model.roster) if has(asked, k)]
