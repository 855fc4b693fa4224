"""The run that this client could come back to: what is kept of it, and whether it still fits."""

import asyncio
import logging

from laser_vfl.client.alignment.aligner import Aligned
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.client.storage.run_record import RunRecord, read_record, write_record
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import Block, data_digest
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.methods.training_settings import TrainingSettings

log = logging.getLogger(__name__)


class ResumableRun:
    """One run at most. Its files outlive the process."""

    def __init__(self, state: StateDirectory) -> None:
        self.run = state.unfinished_run()
        """Empty if there is none."""
        self._state = state
        state.drop_failed_runs(but=self.run)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The steps of the checkpoints that there are of it."""
        if not self.run:
            return ()
        return Checkpoints(self._state.run_directory(self.run) / "checkpoints").held

    async def keep(
        self, aligned: Aligned, settings: TrainingSettings, roster: tuple[str, ...], block: Block
    ) -> RunRecord:
        """Put on disk what is needed to come back; an earlier run is forgotten."""
        run = aligned.call.id
        record = RunRecord(
            run,
            roster,
            aligned.scheme,
            settings,
            (),
            {table: aligned.tables[table] for table in ("train", "test")},
            await asyncio.to_thread(data_digest, block),
        )
        await asyncio.to_thread(self._state.forget_runs)
        await asyncio.to_thread(self._state.drop_failed_runs)
        if aligned.pseudonyms is not None:  # before the model is written, which needs them
            await asyncio.to_thread(PseudonymStore(self._state).write, aligned.pseudonyms)
        await self.rewrite(record)
        self.run = run
        return record

    async def rewrite(self, record: RunRecord) -> None:
        """Put on disk what is known of a run by now."""
        await asyncio.to_thread(write_record, self._state.run_directory(record.run), record)

    async def read(self) -> RunRecord | None:
        """Return what was kept, if it can be read."""
        directory = self._state.run_directory(self.run)
        record = await asyncio.to_thread(read_record, directory)
        if record is not None and record.run != self.run:  # it says where files are written
            log.warning("%s is of another run; this client cannot come back to it", directory)
            record = None
        if record is None:
            self.decline()
        return record

    async def is_of(self, record: RunRecord, block: Block) -> bool:
        """Tell whether a run began with these tables."""
        return record.data_sha256 == await asyncio.to_thread(data_digest, block)

    async def fits(self, record: RunRecord, roster: tuple[str, ...], block: Block) -> bool:
        """Tell whether a run can go on with these tables; if not, this client stays out of it."""
        if record.roster == roster and await self.is_of(record, block):
            return True
        log.error(
            "this client cannot come back to run %s: its tables are not those that the run "
            "began with; it waits for the next one",
            record.run,
        )
        self.decline()
        return False

    def decline(self) -> None:
        """Do not come back; the files stay until the next run, for it may have been a mistake."""
        self.run = ""

    async def end(self) -> None:
        """The run is over for this client: remove its checkpoints, and its scalar if it failed."""
        run, self.run = self.run, ""
        if run:
            await asyncio.to_thread(self._state.end_run, run)
