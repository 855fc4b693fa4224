"""How far an experiment is: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from laser_vfl.experiments.grid.case import Case, shown_p
from laser_vfl.experiments.runner.run_costs import Costs
from laser_vfl.experiments.runner.workers import Outcome


class ExperimentProgress:
    """Shows how many runs have ended, and how long the others may take."""

    def __init__(self, cases: list[Case], costs: Costs, jobs: int) -> None:
        self._left = list(cases)
        self._total = len(cases)
        self._costs, self._jobs = costs, jobs
        self._bar = Progress(
            TextColumn("runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=self._total, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def ended(self, outcome: Outcome) -> None:
        """Say how a run has ended, and when all will have."""
        self._left.remove(outcome.case)
        if not outcome.failure:
            self._costs.add(outcome.case, outcome.seconds)
        left_s = self._costs.left_s(self._left, self._jobs)
        left = "" if left_s is None or not self._left else f"{shown_time(left_s)} left"
        num_ended = self._total - len(self._left)
        line = f"[{num_ended}/{self._total}] {outcome.case}: {_shown(outcome)}"
        if self._bar.disable:
            print(f"{line}; {left}" if left else line, file=sys.stderr, flush=True)
        else:
            style = "[red]" if outcome.failure else ""
            self._bar.console.print(f"{style}{escape(line)}", highlight=False)
            self._bar.update(self._task, completed=num_ended, left=left)


def shown_time(seconds: float) -> str:
    """Return a time as people say it, to two digits or so."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _shown(outcome: Outcome) -> str:
    if outcome.failure:
        return f"failed: {outcome.failure.text}"
    scores = ", ".join(
        f"{100 * result['score']:.1f} at {shown_p(result['p_test'])}" for result in outcome.results
    )
    return f"{scores} ({shown_time(outcome.seconds)})"
