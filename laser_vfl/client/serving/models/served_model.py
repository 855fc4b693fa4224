"""One published model with the rows that it can answer for."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from laser_vfl.client.serving.forward_batcher import ForwardBatcher
from laser_vfl.client.serving.limits.request_cost import RowCost
from laser_vfl.client.serving.models.published_model import PublishedModel
from laser_vfl.client.serving.peer_answers import Named, Subject
from laser_vfl.client.serving.row_index import RowIndex
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.transport.message_limits import most_rows
from laser_vfl.v1 import prediction_pb2 as pb

SPREAD_S = 2.0
"""How long it may take until all members have heard of the outcome of an alignment."""


@dataclass
class ServedModel:
    """What is needed to answer with the model of one run."""

    model: PublishedModel
    row_index: RowIndex
    """Replaced when the serving table changes."""
    representation: ForwardBatcher
    head: ForwardBatcher | None
    pseudonyms: PseudonymTable | None = None
    """How people are named to peers; None if by digests."""
    older_pseudonyms: PseudonymTable | None = None
    """The ones before, for peers that have not heard of the new ones yet."""
    renamed_at: float = -math.inf
    used_at: float = field(default_factory=time.monotonic)

    def used(self) -> None:
        """Somebody asks for this model now."""
        self.used_at = time.monotonic()

    def replace_rows(self, row_index: RowIndex) -> None:
        """Answer with other rows, because the serving table has changed."""
        self.row_index = row_index

    def rename(self, pseudonyms: PseudonymTable) -> None:
        """Name people by a newer alignment."""
        self.renamed_at = time.monotonic()
        self.older_pseudonyms, self.pseudonyms = self.pseudonyms, pseudonyms

    def forget(self, forgotten: ErasureList) -> None:
        """Let go of the rows and the pseudonyms of people who are forgotten."""
        self.row_index = self.row_index.without(forgotten.are)
        self.pseudonyms = _without(self.pseudonyms, forgotten)
        self.older_pseudonyms = _without(self.older_pseudonyms, forgotten)

    def named_to(self, peers: Iterable[str], digests: Digests) -> dict[str, Named]:
        """Name people to peers, to all by the same alignment.

        A new one is used when all have had the time to get it.
        """
        is_young = time.monotonic() < self.renamed_at + SPREAD_S
        pseudonyms = self.older_pseudonyms if is_young else self.pseudonyms
        pseudonyms = pseudonyms or self.pseudonyms
        if pseudonyms is None:
            return dict.fromkeys(peers, Named(digests.tobytes()))
        named = {}
        for peer in peers:
            names, at = pseudonyms.names_for(digests, self.model.roster.index(peer))
            named[peer] = Named(names, pseudonyms.id, at)
        return named

    def pseudonyms_of(self, alignment: str) -> PseudonymTable | None:
        """Return the pseudonyms of the alignment by which a peer asks, if they are known here."""
        known = (self.pseudonyms, self.older_pseudonyms)
        return next((p for p in known if p is not None and p.id == alignment), None)

    @cached_property
    def num_outputs(self) -> int:
        """How many outputs the head has; 0 without one."""
        return self.model.labels.num_outputs if self.model.labels else 0

    @cached_property
    def max_rows(self) -> int:
        """How many samples fit into one question to a peer and its answer."""
        return most_rows(self.model.settings, len(self.model.roster))

    @cached_property
    def row_cost(self) -> RowCost:
        """What a sample costs that is predicted with this model."""
        num_clients = len(self.model.roster)
        width = self.model.settings.exchanged_width(num_clients)
        return RowCost(prod(self.model.encoding.row_shape), num_clients * width)

    @cached_property
    def subject(self) -> Subject:
        """What peers are asked about."""
        model, settings = self.model, self.model.settings
        width = settings.exchanged_width(len(model.roster))
        return Subject(model.run, width, model.wire_dtype, settings.max_norm, self.max_rows)

    @cached_property
    def asked(self) -> list[str]:
        """The clients whose blocks predictions need."""
        return self.model.asked

    def answer_form(self) -> pb.PredictResponse:
        """Return a new answer with what is the same in all answers."""
        form = pb.PredictResponse()
        form.CopyFrom(self._answer_form)
        return form

    @cached_property
    def _answer_form(self) -> pb.PredictResponse:
        model, labels = self.model, self.model.labels
        assert labels is not None
        return pb.PredictResponse(
            run=model.run,
            task=labels.task,
            classes=labels.classes,
            class_kind=labels.kind,
            roster=model.roster,
            score_name=model.score_name,
        )

    def mask(self, client: str) -> int:
        """Return the block of a client as a mask."""
        return 1 << self.model.roster.index(client)


def _without(pseudonyms: PseudonymTable | None, forgotten: ErasureList) -> PseudonymTable | None:
    return pseudonyms and pseudonyms.without(forgotten.have(pseudonyms.digests))
