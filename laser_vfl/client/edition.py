"""One published model with the rows that it can answer for."""

import math
import time
from dataclasses import dataclass, field

from laser_vfl.client.answers import Named, Subject
from laser_vfl.client.batching import Batcher
from laser_vfl.client.digest_index import Digests
from laser_vfl.client.holdings import Holdings
from laser_vfl.client.naming import Naming
from laser_vfl.client.published import PublishedModel
from laser_vfl.wire.protocol import MAX_IDS, MAX_TENSOR_BYTES

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

    def named_to(self, peer: str, digests: Digests) -> Named:
        """Name people to a peer: by a new alignment when all have had the time to get it."""
        is_young = time.monotonic() < self.renamed_at + SPREAD_S
        naming = self.older_naming if is_young and self.older_naming else self.naming
        if naming is None:
            return Named(digests.tobytes())
        names, at = naming.names_for(digests, self.model.roster.index(peer))
        return Named(names, naming.id, at)

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
        subject = self.subject
        return min(MAX_IDS, MAX_TENSOR_BYTES // (subject.width * subject.dtype.itemsize))

    @property
    def subject(self) -> Subject:
        """What peers are asked about."""
        model = self.model
        return Subject(model.run, model.settings.representation_dim, model.wire_dtype)
