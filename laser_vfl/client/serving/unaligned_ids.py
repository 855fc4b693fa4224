"""Ids that this client could serve but that have no pseudonym yet, so that no peer can be asked."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from laser_vfl.client.serving.limits.alignment_quota import AlignmentQuota
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.client.tables.table_listing import Blind, Listing, People, listing

MAX_REMEMBERED = 100_000
"""How many ids that came with requests are remembered until they are aligned."""


@dataclass(frozen=True)
class NotAligned:
    """How many ids of a request stay without other clients' blocks, and why."""

    num: int
    reason: str


class UnalignedIds:
    """Those of the tables, and those whose features came with a request. For any thread."""

    def __init__(
        self,
        blind: Blind,
        order: bytes,
        may_align: Callable[[], bool],
        *,
        quota: AlignmentQuota | None,
        are_forgotten: Callable[[Sequence[str]], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        """Without a quota, ids that come with requests are not aligned.

        People who are forgotten count like all others when they come with a request, so that
        nobody who asks can tell them apart; they are not aligned.
        """
        self.num = 0
        """How many there are; an id that is in a table and in a request counts twice."""
        self._blind = blind
        self._order = order
        self._may_align = may_align
        self._quota = quota
        self._are_forgotten = are_forgotten
        self._requested: dict[bytes, str] = {}
        self._lock = threading.Lock()

    @property
    def num_to_align(self) -> int:
        """How many to ask an alignment for; 0 when the daily limit of alignments is reached."""
        return self.num if self._may_align() else 0

    @property
    def remembers_requests(self) -> bool:
        """Whether `remember` may write to the disk, and so is no work for an event loop."""
        return self._quota is not None

    def remember(
        self, model: ServedModel, ids: Sequence[str], digests: Digests, caller: str
    ) -> NotAligned | None:
        """Remember ids whose features came with a request, to be aligned like the rest.

        Peers are asked for them once they have a pseudonym. Returns which cannot be remembered.
        """
        if model.pseudonyms is None:
            return None
        places = np.flatnonzero(model.pseudonyms.is_new(digests)).tolist()
        new = {digests[place].tobytes(): ids[place] for place in places}
        if not new:
            return None
        if self._quota is None:
            reason = "they are in no table that is aligned, and serving.align_requests is off"
            return NotAligned(len(new), reason)
        with self._lock:
            return self._remember(new, caller)

    def _remember(self, new: dict[bytes, str], caller: str) -> NotAligned | None:
        """Remember as many as the caller has left of its quota."""
        assert self._quota is not None
        unknown = {digest: id for digest, id in new.items() if digest not in self._requested}
        room = MAX_REMEMBERED - len(self._requested)
        num = min(len(unknown), room, self._quota.left(caller))
        reason = (
            f"{self._quota.per_day} new ids have been aligned for this application within a day, "
            "the most that serving.align_requests_per_day allows; ask again tomorrow"
        )
        if num == room < len(unknown):
            reason = f"{MAX_REMEMBERED} ids wait to be aligned already; ask again later"
        if num and not self._quota.take(caller, num):
            num, reason = 0, "the quota of new ids cannot be written to the disk; see the log"
        self._requested |= islice(unknown.items(), num)
        self.num += num
        return NotAligned(len(unknown) - num, reason) if num < len(unknown) else None

    def listed(self, model: ServedModel | None) -> Listing:
        """List the ids that a model has no pseudonym for."""
        if model is None or model.pseudonyms is None:
            return listing()
        with self._lock:
            ids = list(self._requested.values())
        if self._are_forgotten is not None:
            gone = self._are_forgotten(ids)
            ids = [id for id, is_gone in zip(ids, gone, strict=True) if not is_gone]
        parts = (*model.row_index.people, People(ids, self._blind(ids)))
        new = [part.part(model.pseudonyms.is_new(part.digests)) for part in parts]
        return listing(*new, order=self._order)

    def count(self, model: ServedModel | None) -> None:
        """Count the ids that a model has no pseudonym for."""
        self.num = len(self.listed(model))

    def drop_aligned(self, pseudonyms: PseudonymTable) -> None:
        """Let go of ids that have a pseudonym now."""
        aligned = {digest.tobytes() for digest in pseudonyms.digests}
        with self._lock:
            self._requested = {d: id for d, id in self._requested.items() if d not in aligned}

    def drop_forgotten(self, are_gone: Callable[[Sequence[str]], npt.NDArray[np.bool_]]) -> None:
        """Let go of ids of people to forget."""
        with self._lock:
            gone = are_gone(list(self._requested.values()))
            kept = zip(self._requested.items(), gone, strict=True)
            self._requested = {d: id for (d, id), is_gone in kept if not is_gone}
