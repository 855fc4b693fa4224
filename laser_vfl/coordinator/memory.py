"""Keeps what the rules decide on disk, so that a coordinator that was killed goes on from there."""

import hashlib
import json
import logging
import sqlite3
import time

from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.store import Store
from laser_vfl.wire.protocol import PROTOCOL_VERSION

log = logging.getLogger(__name__)


class Memory:
    """A federation's state on disk. Nothing is told to anybody before it is there."""

    def __init__(self, store: Store, fingerprint: str) -> None:
        self.is_up_to_date = True
        self._store = store
        self._fingerprint = fingerprint
        self._results_of = ""

    def recall(self, federation: Federation) -> None:
        """Go on from what is on disk, if it fits the configuration."""
        stored = self._store.load(self._fingerprint)
        if stored is None:
            self._store.check_abandoned()
            return
        run = stored["run"]["id"] if stored["run"] else ""
        federation.restore(stored, self._store.load_results(run), time.monotonic())
        self._results_of = run
        if run:
            log.info("run %s goes on from what was on disk", run)

    def keep(self, federation: Federation) -> None:
        """Write what has changed. When that fails, it is tried again each time."""
        try:
            self.keep_results(federation)
            self._store.save(self._fingerprint, federation.snapshot())
        except sqlite3.Error as error:
            if self.is_up_to_date:
                log.error(
                    "the state cannot be written (%s); nothing changes until it can; free some "
                    "space or make the state directory writable",
                    error,
                )
            self.is_up_to_date = False
            return
        if not self.is_up_to_date:
            log.info("the state can be written again")
        self.is_up_to_date = True

    def keep_results(self, federation: Federation) -> None:
        """Write the outcome of a run's alignment, once; forget it when all have it."""
        run = federation.run
        wanted = run.id if run and run.alignments else ""
        if wanted != self._results_of:
            self._store.save_results(wanted, run.alignments if run else {})
            self._results_of = wanted


def fingerprint(config: CoordinatorConfig) -> str:
    """Return what a run depends on: with other settings one under way cannot go on."""
    training = config.training.model_dump(exclude={"step_timeout_s", "checkpoint_every"})
    content = [PROTOCOL_VERSION, config.federation, config.clients, config.alignment, training]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
