"""How long runs take: to start the longest first, and to tell the time left."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.names import profile_of
from laser_vfl.experiments.runner.results_file import ScoreLine

UNKNOWN_S: Final = 60.0
"""Of a run that nothing is known about; only the order of runs depends on it."""


class Costs:
    """Expects a run to take as long as those like it did."""

    def __init__(self, lines: Iterable[ScoreLine]) -> None:
        self._seconds: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
        self._spent = self._expected = 0.0
        for line in lines:
            alike = (line["dataset"], line["method"], line["num_clients"])
            self._seconds[alike][line["key"]] = line["seconds"]

    def expected_s(self, case: Case) -> float:
        """Return the expected seconds of a run."""
        known = self._seconds.get((case.dataset, case.method, case.num_clients))
        if known:
            return fmean(known.values())
        profile = profile_of(case.method)
        size = 2.0**case.num_clients / 16 if profile.has_model_per_subset else 1.0
        return UNKNOWN_S * profile.relative_cost * size * case.num_clients / 4

    def longest_first(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases in the order to run them in."""
        return sorted(cases, key=self.expected_s, reverse=True)

    def add(self, case: Case, seconds: float) -> None:
        """Learn from a run that has ended."""
        self._expected += self.expected_s(case)
        self._spent += seconds
        self._seconds[case.dataset, case.method, case.num_clients][case.key()] = seconds

    def left_s(self, cases: Sequence[Case], jobs: int) -> float | None:
        """Return the expected time for these, or None before a single run has ended."""
        if not self._expected:
            return None
        return sum(map(self._scaled_s, cases)) / max(1, min(jobs, len(cases)))

    def _scaled_s(self, case: Case) -> float:
        known = (case.dataset, case.method, case.num_clients) in self._seconds
        return self.expected_s(case) * (1.0 if known else self._spent / self._expected)
