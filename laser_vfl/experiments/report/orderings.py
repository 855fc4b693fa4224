"""Where two methods stand the other way round than in the paper, and it is not by chance."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

from laser_vfl.experiments.grid.case import PMiss, shown_p
from laser_vfl.experiments.grid.names import METHODS
from laser_vfl.experiments.grid.paper import paper_value
from laser_vfl.experiments.report.cells import CellPosition, Cells, Value


@dataclass(frozen=True)
class Contradiction:
    """Here `better` is above `worse`; in the paper it is below.

    A gap is clear if it is wider than one standard deviation of either method.
    """

    dataset: str
    p_train: PMiss
    p_test: PMiss
    better: str
    worse: str
    here: tuple[Value, Value]
    paper: tuple[Value, Value]
    is_clear_here: bool
    is_clear_in_paper: bool

    def __str__(self) -> str:
        clear = {
            (True, True): "clear in both",
            (True, False): "clear here only",
            (False, True): "clear in the paper only",
        }[self.is_clear_here, self.is_clear_in_paper]
        where = f"p_train {shown_p(self.p_train)}, p_test {shown_p(self.p_test)}"
        (better, worse), (below, above) = self.here, self.paper
        return (
            f"{where}: {METHODS[self.better]} {better} is above {METHODS[self.worse]} {worse}; "
            f"in the paper {below} is below {above} ({clear})"
        )


def contradictions(cells: Cells) -> list[Contradiction]:
    """Return pairs of methods in opposite order whose gap is clear here or in the paper.

    The clearest come first: in both, then here, then in the paper.
    """
    columns: dict[tuple[str, PMiss, PMiss], dict[str, tuple[Value, Value]]] = defaultdict(dict)
    for place, cell in cells.items():
        in_paper = paper_value(place)
        if in_paper is not None:
            columns[_column(place)][place.method] = (cell.value, in_paper)
    found = []
    for (dataset, p_train, p_test), values in columns.items():
        for one, other in combinations(sorted(values), 2):
            better, worse = sorted((one, other), key=lambda m: values[m][0].mean, reverse=True)
            here = (values[better][0], values[worse][0])
            paper = (values[better][1], values[worse][1])
            if here[0].mean == here[1].mean or paper[0].mean >= paper[1].mean:
                continue
            clear = (_is_clear(here, paper), _is_clear(paper, paper))
            if any(clear):
                found.append(
                    Contradiction(dataset, p_train, p_test, better, worse, here, paper, *clear)
                )
    return sorted(
        found,
        key=lambda c: (
            not c.is_clear_here,
            not c.is_clear_in_paper,
            shown_p(c.p_train),
            shown_p(c.p_test),
        ),
    )


def _column(place: CellPosition) -> tuple[str, PMiss, PMiss]:
    return place.dataset, place.p_train, place.p_test


def _is_clear(values: tuple[Value, Value], paper: tuple[Value, Value]) -> bool:
    """Whether a gap is wider than both deviations; the paper's stand in where there is one seed."""
    deviations = [
        value.std if value.std is not None else other.std or 0.0
        for value, other in zip(values, paper, strict=True)
    ]
    return abs(values[0].mean - values[1].mean) > max(deviations)
