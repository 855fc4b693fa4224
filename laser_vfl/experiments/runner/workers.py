"""Processes that take one run after the other; one that dies costs the run it had, nothing else."""

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path

from laser_vfl.core.errors import ExitCode, LaserError
from laser_vfl.experiments.engines.engine_registry import IN_ONE_PROCESS, Engine, engine_named
from laser_vfl.experiments.grid.case import Case, Result

STOP_S = 30.0
"""How long a worker may take to end what it has started, such as daemons."""

SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class CaseFailure:
    """Why a run has no scores."""

    text: str
    exit_code: int
    details: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a run has ended."""

    case: Case
    results: tuple[Result, ...] = ()
    failure: CaseFailure | None = None
    seconds: float = 0.0


def run_cases(
    cases: Iterable[Case], engine: str, data: Path | None, jobs: int
) -> Generator[Outcome]:
    """Run all, `jobs` at a time, and give each outcome as soon as it is there.

    When the caller stops early, whatever runs is ended.
    """
    left = list(reversed(list(cases)))
    workers: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}

    def start() -> _Worker:
        workers.append(_Worker(engine, data))
        return workers[-1]

    def give_one_to(worker: _Worker) -> None:
        busy[worker.connection] = worker
        worker.give(left.pop())

    try:
        for _ in range(min(jobs, len(left))):
            give_one_to(start())
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy.pop(connection)
                outcome = worker.take()
                if left:
                    give_one_to(start() if worker.is_dead else worker)
                else:
                    worker.release()
                yield outcome
    finally:
        for worker in busy.values():
            worker.terminate()
        for worker in workers:
            worker.stop()


class _Worker:
    """One process, and the run that it has."""

    def __init__(self, engine: str, data: Path | None) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=work, args=(theirs, engine, data), daemon=True)
        self._process.start()
        self.is_dead = False
        theirs.close()

    def give(self, case: Case) -> None:
        self._case = case
        with suppress(BrokenPipeError):  # it is dead, and take() says so
            self.connection.send(case)

    def take(self) -> Outcome:
        try:
            outcome: Outcome = self.connection.recv()
            return outcome
        except (EOFError, OSError):
            self._process.join(STOP_S)
            code = self._process.exitcode
            reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            text = f"its process died ({reason}); is there enough memory for so many --jobs?"
            self.is_dead = True
            return Outcome(self._case, failure=CaseFailure(text, ExitCode.INTERNAL))

    def terminate(self) -> None:
        self._process.terminate()

    def release(self) -> None:
        """Have it end by itself once it has nothing to do."""
        self.connection.close()

    def stop(self) -> None:
        """See to it that it has ended."""
        self.release()
        self._process.join(STOP_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()


def work(connection: Connection, engine: str, data: Path | None) -> None:
    """Run what comes over the connection until it is closed: the whole life of a worker."""
    # Ctrl-C reaches all processes of a terminal; the one that started us decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if engine not in IN_ONE_PROCESS:  # others may have started what is to be ended
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    os.environ["OMP_NUM_THREADS"] = "1"
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            case = connection.recv()
            connection.send(_outcome(case, engine, data))


def _outcome(case: Case, engine: str, data: Path | None) -> Outcome:
    started = time.monotonic()
    try:
        results = tuple(_ready(engine)(case, data))
        return Outcome(case, results, seconds=time.monotonic() - started)
    except LaserError as error:
        failure = CaseFailure(str(error), error.exit_code, traceback.format_exc())
    except Exception as error:
        text = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        failure = CaseFailure(text, ExitCode.INTERNAL, traceback.format_exc())
    return Outcome(case, failure=failure)


@lru_cache(1)
def _ready(name: str) -> Engine:
    engine = engine_named(name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return engine
