"""One published model with the rows that it can answer for."""

import time
from dataclasses import dataclass, field

from laser_vfl.client.answers import Subject
from laser_vfl.client.batching import Batcher
from laser_vfl.client.holdings import Holdings
from laser_vfl.client.published import PublishedModel
from laser_vfl.wire.protocol import MAX_IDS, MAX_TENSOR_BYTES


@dataclass
class Edition:
    """What is needed to answer with the model of one run."""

    model: PublishedModel
    holdings: Holdings
    """Replaced when the serving table changes."""
    representation: Batcher
    head: Batcher | None
    used_at: float = field(default_factory=time.monotonic)

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
