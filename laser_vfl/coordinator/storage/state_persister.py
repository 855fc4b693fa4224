"""Keeps what the rules decide on disk, so that a coordinator that was killed goes on from there."""

import asyncio
import copy
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.rules.alignment.alignment import Results
from laser_vfl.coordinator.rules.federation import Federation
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.coordinator.storage.database import Store

log = logging.getLogger(__name__)

STATE_VERSION = 6
"""Raised when a run on disk cannot go on under a newer release. 0.1.0 has written 6 there."""


class StatePersister:
    """A federation's state on disk. Nothing is told to anybody before it is there.

    All writing is done in a thread, so that a slow disk never holds up the event loop. An
    alignment, which may have hundreds of megabytes, is written before the rules hear of the run
    that it is for.
    """

    def __init__(self, store: Store, fingerprint: str) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._results_of = ""
        """The run whose alignment is on disk."""
        self._thread = asyncio.Lock()
        """Held while the thread writes."""
        self._has_failed = False
        self._is_closed = False

    def recall(self, federation: Federation) -> None:
        """Go on from what is on disk, if it fits the configuration."""
        stored = self._store.load(self._fingerprint)
        if stored is None:
            self._store.check_abandoned()
            return
        try:
            run = stored["run"]["id"] if stored["run"] else ""
            has_started = bool(run and stored["run"]["membership"])
            results = {} if has_started else self._store.load_results(run)
            federation.restore(stored, results, time.monotonic())
        except (OverflowError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._store.unusable(error) from None
        self._results_of = run
        if run:
            log.info("run %s goes on from what was on disk", run)

    async def write_results(self, run: str, results: Results) -> None:
        """Write the outcome of a run's alignment. If that fails, `keep` tries again."""
        await asyncio.shield(self._write_results(run, results))

    async def forget_results(self, federation: Federation) -> None:
        """Remove an alignment that everybody has, or whose run came to nothing."""
        if self._results_of and not _needs_results(federation):
            await asyncio.shield(self._write_results("", {}))

    async def close(self) -> None:
        """Let go of the database, once the thread has."""
        async with self._thread:
            self._is_closed = True
            self._store.close()

    async def keep(self, federation: Federation) -> bool:
        """Write the state of this moment if it is not on disk; whether it is there then."""
        document, run = federation.snapshot(), _needs_results(federation)
        id, results = (run.id, run.alignments) if run else ("", {})
        if self._store.has_saved(document) and id in ("", self._results_of):
            return True
        # The rules go on while the thread writes, so it gets a copy.
        return await asyncio.shield(self._keep(copy.deepcopy(document), id, results))

    async def _keep(self, document: Mapping[str, Any], run: str, results: Results) -> bool:
        async with self._thread:
            if self._is_closed:
                return False
            try:
                if run and run != self._results_of:
                    await asyncio.to_thread(self._store.save_results, run, results)
                    self._results_of = run
                await asyncio.to_thread(self._store.save, self._fingerprint, document)
            except sqlite3.Error as error:
                if not self._has_failed:
                    log.error(
                        "the state cannot be written (%s); nothing changes until it can; free some "
                        "space or make the state directory writable",
                        error,
                    )
                self._has_failed = True
                return False
        if self._has_failed:
            log.info("the state can be written again")
        self._has_failed = False
        return True

    async def _write_results(self, run: str, results: Results) -> None:
        async with self._thread:
            try:
                await asyncio.to_thread(self._store.save_results, run, results)
            except sqlite3.Error as error:
                log.warning("an alignment was not written (%s)", error)
                return
            self._results_of = run


def _needs_results(federation: Federation) -> Run | None:
    """Return the run whose clients have not all fetched their part of its alignment."""
    run = federation.run
    return run if run and run.alignments else None


def fingerprint(config: CoordinatorConfig) -> str:
    """Return what a run depends on: with other settings one under way cannot go on."""
    training = config.training.model_dump(exclude={"step_timeout_s", "checkpoint_every"})
    if not training["pipeline"]:  # 0.1.0 did not have it
        del training["pipeline"]
    content = [STATE_VERSION, config.federation, config.clients, config.alignment, training]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
