"""Running an experiment from its cases to its report, and what to do when it is interrupted."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from laser_vfl.cli.experiment.experiment_progress import ExperimentProgress
from laser_vfl.cli.experiment.experiment_report import check_matplotlib, show_report
from laser_vfl.core.errors import ExitCode
from laser_vfl.data.sets import load_set
from laser_vfl.experiments.engines.engine_registry import ENGINES, check_engine
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.case_settings import settings_hash
from laser_vfl.experiments.grid.checking import check_case
from laser_vfl.experiments.grid.expansion import Grid, expand
from laser_vfl.experiments.report.cells import outdone
from laser_vfl.experiments.runner.experiment_record import write_record
from laser_vfl.experiments.runner.results_file import ResultsFile, missing, read_lines
from laser_vfl.experiments.runner.run_costs import Costs
from laser_vfl.experiments.runner.workers import CaseFailure, Outcome, run_cases

FAILURES = "failures.log"


@dataclass(frozen=True)
class RunOptions:
    """Options that all `experiment` commands share."""

    out: Path
    jobs: int | None = None
    engine: str = "oracle"
    data: Path | None = None
    plot: bool = True
    as_json: bool = False


class ExperimentInterrupted(BaseException):
    """SIGINT or SIGTERM has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def run_experiment(kind: str, grid: Grid, options: RunOptions) -> int:
    """Run whatever is missing, write and print the report; return the exit code."""
    check_engine(options.engine)
    if options.plot:
        check_matplotlib()
    cases = expand(grid)
    for case in cases:
        check_case(case, options.engine)
    hashes = {case.key(): settings_hash(case) for case in cases}
    write_record(options.out, kind, _notes(grid.datasets, options))
    try:
        code = _run_missing(cases, hashes, options)
    except ExperimentInterrupted as interrupt:
        # Counted in the file: the signal may have come between a line and whoever counts it.
        num_done = len(cases) - len(_left(cases, hashes, options))
        kept = f"{num_done} of {len(cases)} runs are kept in {options.out}"
        _say(f"interrupted; {kept}, and the same command goes on from there")
        return interrupt.exit_code
    if read_lines(options.out):
        show_report(options.out, plot=options.plot, as_json=options.as_json)
    return code


def _notes(datasets: tuple[str, ...], options: RunOptions) -> dict[str, list[str]]:
    """Return what differs in the data from the paper's; a file that is not there fails here."""
    if options.engine not in ENGINES:
        return {}
    return {name: list(load_set(name, options.data).notes) for name in datasets}


def _run_missing(cases: list[Case], hashes: dict[str, str], options: RunOptions) -> int:
    """Run what is not in OUT yet; return the exit code of what failed, or 0."""
    with ResultsFile(options.out) as file:
        lines = read_lines(options.out)
        for line in outdone(cases, lines, lambda case: hashes[case.key()], options.engine):
            file.append_line(line)  # what is asked for is what the report shows
        costs = Costs(lines)
        left = costs.longest_first(_left(cases, hashes, options))
        jobs = options.jobs or os.cpu_count() or 1
        num_done = len(cases) - len(left)
        _say(f"{len(cases)} runs, {num_done} of them done already; {jobs} at a time")
        failures: list[CaseFailure] = []
        with (
            _interruptible(),
            ExperimentProgress(left, costs, jobs) as progress,
            closing(run_cases(left, options.engine, options.data, jobs)) as outcomes,
        ):
            for outcome in outcomes:
                if outcome.failure:
                    failures.append(outcome.failure)
                    _note(outcome, options.out)
                else:
                    settings = hashes[outcome.case.key()]
                    file.append(outcome.case, settings, options.engine, outcome.results)
                progress.ended(outcome)
    if not failures:
        return int(ExitCode.OK)
    _say(f"{len(failures)} of {len(cases)} runs failed; see {options.out / FAILURES}")
    codes = {failure.exit_code for failure in failures}
    return int(codes.pop() if len(codes) == 1 else ExitCode.STOPPED)


def _left(cases: list[Case], hashes: dict[str, str], options: RunOptions) -> list[Case]:
    lines = read_lines(options.out)
    return missing(cases, lines, lambda case: hashes[case.key()], options.engine)


def _note(outcome: Outcome, out: Path) -> None:
    assert outcome.failure is not None
    with (out / FAILURES).open("a") as file:
        file.write(f"{outcome.case}: {outcome.failure.text}\n{outcome.failure.details}\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise at the first signal; ignore further ones while everything is being ended."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise ExperimentInterrupted(number)

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
