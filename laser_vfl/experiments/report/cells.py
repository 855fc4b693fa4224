"""What the seeds of a cell come to: mean ± sample standard deviation, in the paper's units."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from laser_vfl.experiments.grid.case import Case, PMiss
from laser_vfl.experiments.runner.results_file import ScoreLine, SettingsHash


class CellPosition(NamedTuple):
    """Where a cell belongs in a table."""

    dataset: str
    method: str
    variant: str
    num_clients: int
    p_train: PMiss
    p_test: PMiss


@dataclass(frozen=True)
class Value:
    """A score in percent; one seed has no standard deviation."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


@dataclass(frozen=True)
class Cell:
    """The runs of a cell, one for each seed."""

    lines: tuple[ScoreLine, ...]

    @property
    def num_seeds(self) -> int:
        """How many runs there are."""
        return len(self.lines)

    @property
    def value(self) -> Value:
        """The score over seeds."""
        return self._over(100 * line["score"] for line in self.lines)

    @property
    def seconds(self) -> Value:
        """The time that training took."""
        return self._over(line["seconds"] for line in self.lines)

    @property
    def step_ms(self) -> Value:
        """The time that a step took, in milliseconds."""
        return self._over(1e3 * line["seconds_per_step"] for line in self.lines)

    @property
    def num_steps(self) -> float:
        """The mean number of steps."""
        return fmean(line["num_steps"] for line in self.lines)

    @property
    def by_client(self) -> dict[str, Value | None]:
        """The score of each client, where it has one."""
        names = dict.fromkeys(name for line in self.lines for name in line["by_client"])
        found = {name: [line["by_client"].get(name) for line in self.lines] for name in names}
        known = {name: [100 * v for v in each if v is not None] for name, each in found.items()}
        return {name: self._over(each) if each else None for name, each in known.items()}

    @staticmethod
    def _over(values: Iterable[float]) -> Value:
        found = list(values)
        return Value(fmean(found), stdev(found) if len(found) > 1 else None)


Cells = Mapping[CellPosition, Cell]


def cells_of(lines: Iterable[ScoreLine]) -> dict[CellPosition, Cell]:
    """Put the lines of each cell together; of two for the same seed, the later counts."""
    by_place: dict[CellPosition, dict[int, ScoreLine]] = defaultdict(dict)
    for line in lines:
        place = CellPosition(
            line["dataset"],
            line["method"],
            line["variant"],
            line["num_clients"],
            line["p_train"],
            line["p_test"],
        )
        by_place[place][line["seed"]] = line
    return {
        place: Cell(tuple(line for _, line in sorted(by_seed.items())))
        for place, by_seed in by_place.items()
    }


def outdone(
    cases: Iterable[Case], lines: Sequence[ScoreLine], settings_hash: SettingsHash, engine: str
) -> list[ScoreLine]:
    """Return scores of these runs that do not count, because a later one has other settings."""
    wanted = {(case.key(), settings_hash(case), p) for case in cases for p in case.p_test}
    last = {
        name: line
        for line in lines
        if line["engine"] == engine
        and (name := (line["key"], line["settings"], line["p_test"])) in wanted
    }
    counted = {id(line) for cell in cells_of(lines).values() for line in cell.lines}
    return [line for line in last.values() if id(line) not in counted]
