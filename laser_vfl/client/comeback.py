"""The run that this client could come back to: what is kept of it, and whether it still fits."""

import asyncio
import logging

from laser_vfl.client.aligning import Aligned
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import Block
from laser_vfl.client.checkpoints import Checkpoints
from laser_vfl.client.run_record import RunRecord, data_digest, read_record, write_record
from laser_vfl.core.settings import TrainingSettings

log = logging.getLogger(__name__)


class Comeback:
    """One run at most. Its files outlive the process."""

    def __init__(self, state: StateDirectory) -> None:
        self.run = state.unfinished_run()
        """Empty if there is none."""
        self._state = state

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
        if aligned.naming is not None:  # before the model, so that none is without
            await asyncio.to_thread(self._state.write_naming, aligned.naming)
        await self.rewrite(record)
        self.run = run
        return record

    async def rewrite(self, record: RunRecord) -> None:
        """Put on disk what is known of a run by now."""
        await asyncio.to_thread(write_record, self._state.run_directory(record.run), record)

    async def read(self) -> RunRecord | None:
        """Return what was kept, if it can be read."""
        record = await asyncio.to_thread(read_record, self._state.run_directory(self.run))
        if record is None:
            self.decline()
        return record

    async def fits(self, record: RunRecord, roster: tuple[str, ...], block: Block) -> bool:
        """Tell whether a run can go on with these tables; if not, this client stays out of it."""
        digest = await asyncio.to_thread(data_digest, block)
        if (record.data_sha256, record.roster) == (digest, roster):
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

    def end(self) -> None:
        """The run is over for this client."""
        self._state.end_run(self.run)
        self.run = ""
