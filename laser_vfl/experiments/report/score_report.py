"""The report of `table` and `nonuniform`: scores by method, p_train and p_test."""

from collections.abc import Mapping, Sequence

from laser_vfl.experiments.grid.case import BETA, PMiss, shown_p
from laser_vfl.experiments.grid.names import DATASETS, METHODS
from laser_vfl.experiments.grid.paper import paper_value
from laser_vfl.experiments.report.cells import CellPosition, Cells
from laser_vfl.experiments.report.markdown import notes_under, seeds_of, shown, table
from laser_vfl.experiments.report.orderings import contradictions

Notes = Mapping[str, Sequence[str]]


def score_report(cells: Cells, notes: Notes, title: str) -> str:
    """Return the report in Markdown: for each data set a table for each p_train."""
    lines = [f"# {title}", "", _LEGEND]
    for dataset in (name for name in DATASETS if any(p.dataset == name for p in cells)):
        lines += ["", f"## {DATASETS[dataset]}"]
        clients = sorted({p.num_clients for p in cells if p.dataset == dataset})
        for num_clients in clients:
            chosen = {
                place: cell
                for place, cell in cells.items()
                if (place.dataset, place.num_clients) == (dataset, num_clients)
            }
            if clients != [4]:
                lines += ["", f"{num_clients} clients."]
            for p_train in rising(place.p_train for place in chosen):
                lines += ["", *_one_table(chosen, p_train)]
            lines += _under(chosen, notes.get(dataset, ()))
    return "\n".join(lines) + "\n"


_LEGEND = (
    "Mean ± sample standard deviation over seeds; the best of a column is bold. Beside each score "
    "is what the paper reports for it. p is the probability that a block of a sample is missing."
)


def rising(probabilities: object) -> list[PMiss]:
    """Return probabilities once each, numbers first."""
    found: set[PMiss] = set(probabilities)  # type: ignore[call-overload]
    return sorted(found, key=lambda p: (p == BETA, p))


def described(p: PMiss) -> str:
    """Return a probability as it stands in a heading."""
    return "~ Beta(2, 2)" if p == BETA else f"= {shown_p(p)}"


def _one_table(cells: Cells, p_train: PMiss) -> list[str]:
    places = [place for place in cells if place.p_train == p_train]
    methods = [name for name in METHODS if any(place.method == name for place in places)]
    header, columns = [f"Trained with p {described(p_train)}"], [[METHODS[m] for m in methods]]
    for p_test in rising(place.p_test for place in places):
        row = [places[0]._replace(method=m, p_train=p_train, p_test=p_test) for m in methods]
        header.append(f"test p {described(p_test)}")
        columns.append(shown([cells[p].value if p in cells else None for p in row]))
        in_paper = [paper_value(place) for place in row]
        if any(in_paper):
            header.append("paper")
            columns.append(shown(in_paper))
    header.append("seeds")
    columns.append([seeds_of(_num_seeds(cells, places, method)) for method in methods])
    return table(header, zip(*columns, strict=True))


def _num_seeds(cells: Cells, places: Sequence[CellPosition], method: str) -> list[int]:
    return [cells[place].num_seeds for place in places if place.method == method]


def _under(cells: Cells, notes: Sequence[str]) -> list[str]:
    """Return what stands under the tables of a data set."""
    lines = notes_under(cells, notes)
    if any(paper_value(place) for place in cells):
        found = contradictions(cells)
        lines += ["", "Differs from the paper (order of two methods, by more than one standard "]
        lines[-1] += "deviation of either):" if found else "deviation of either): nowhere."
        lines += ["", *(f"- {each}" for each in found)] if found else []
    return lines
