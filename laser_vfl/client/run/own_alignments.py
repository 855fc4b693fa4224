"""This client's part in alignments: the lists that it brings, and whether it may take part."""

import asyncio
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from laser_vfl.client.alignment.aligner import Aligned, Aligner
from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.alignment.ring_call import RingCall
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.own_tables import OwnTables
from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.core.alignment_purpose import AlignmentPurpose, Scheme
from laser_vfl.core.errors import ContractError, DataError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, as the GNU C library numbers them."""

RETURNED_BYTES = 1 << 18
KEPT_BYTES = 1 << 25
"""Where the GNU C library puts this threshold by itself when large pieces are freed repeatedly."""


class OwnAlignments:
    """Lists the people of this client's tables, or those whom its model cannot name yet."""

    def __init__(
        self,
        aligner: Aligner,
        ledger: AlignmentLedger,
        tables: OwnTables,
        serving: ModelRegistry,
        state: StateDirectory,
    ) -> None:
        self._aligner = aligner
        self._ledger = ledger
        self._tables = tables
        self._serving = serving
        self._state = state

    async def prepare(self) -> None:
        """Read the tables, unless they have just been read; raise unless a run may align them."""
        self._ledger.check(AlignmentPurpose.RUN)
        await self._tables.refresh()
        await asyncio.to_thread(self._check_room)

    def give_back(self) -> None:
        """Take back the count of an alignment whose run others could not start."""
        self._ledger.give_back()

    async def attend(self, call: RingCall, scheme: Scheme, roster: tuple[str, ...]) -> Aligned:
        """Take part in an alignment; the lists that it needs are not kept in memory after it."""
        with freed_memory_returned():
            if call.purpose is AlignmentPurpose.UNALIGNED_IDS:
                return await self._align_unaligned(call, scheme, roster)
            return await self._align_tables(call, scheme, roster)

    def _known(self, call: RingCall, roster: tuple[str, ...]) -> PseudonymTable:
        """Return the people who were aligned for the run whose scalars a call names."""
        model = self._serving.current
        known = model.pseudonyms if model else None
        if known is None or (known.run, known.members) != (call.run, call.names):
            raise DataError(
                f"this client has no scalar of run {call.run} with these members",
                hint="train again with `laser-vfl retrain --config coordinator.yaml`",
            )
        if model is None or model.model.roster != roster:
            raise DataError(
                "the roster has changed since the training, and names do not fit it any more",
                hint="train again with `laser-vfl retrain --config coordinator.yaml`",
            )
        return known

    async def _align_unaligned(
        self, call: RingCall, scheme: Scheme, roster: tuple[str, ...]
    ) -> Aligned:
        known = self._known(call, roster)
        unaligned = await asyncio.to_thread(self._serving.unaligned_ids)
        model = self._serving.current
        present = [part.digests for part in model.row_index.people] if model else []
        return await self._aligner.align(call, scheme, {"serve": unaligned}, known, present)

    async def _align_tables(
        self, call: RingCall, scheme: Scheme, roster: tuple[str, ...]
    ) -> Aligned:
        known = self._known(call, roster) if call.is_based else None
        if self._state.has_model(call.id):
            raise ContractError("the coordinator calls to a run that has been")
        if call.purpose is AlignmentPurpose.RUN:
            await self._tables.leave_out_forgotten()
        is_dry = call.purpose is AlignmentPurpose.DRY_RUN
        block = await self._tables.as_they_are() if is_dry else self._tables.block
        served = self._serving.served_people
        lists = await asyncio.to_thread(self._tables.lists, block, served, scheme)
        return await self._aligner.align(call, scheme, lists, known)

    def _check_room(self) -> None:
        """Raise unless what an alignment leaves could be written, before others begin one."""
        block = self._tables.block
        tables = [table for table in (block.train, block.test) if table is not None]
        num_people = sum(len(table.digests) for table in tables)
        self._state.check_room(num_people + len(self._serving.served_people.digests))


@contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Give freed memory back to the system at once; without the GNU C library, change nothing.

    It keeps large pieces for later, which suits training, where every step needs the same again.
    An alignment needs each of its lists once.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, RETURNED_BYTES)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)
