"""The report of `scaling`: scores, and the time of a step, for growing numbers of clients."""

from collections.abc import Mapping

from laser_vfl.experiments.grid.case import PMiss
from laser_vfl.experiments.grid.names import DATASETS, METHODS
from laser_vfl.experiments.report.cells import Cell, Cells, Value
from laser_vfl.experiments.report.markdown import NOTHING, notes_under, seeds_of, shown, table
from laser_vfl.experiments.report.score_report import Notes, described, rising

FEW, MANY = 4, 8
"""The numbers of clients whose times are compared: linear growth of all is none for each."""


def scaling_report(cells: Cells, notes: Notes) -> str:
    """Return the report in Markdown: for each data set a table of scores and one of times."""
    lines = [
        "# Growing numbers of clients",
        "",
        "Mean ± sample standard deviation over seeds; the best score of a column is bold. A step "
        "is timed for the whole federation in one process, so the work of all clients adds up.",
    ]
    for dataset in (name for name in DATASETS if any(p.dataset == name for p in cells)):
        chosen = {place: cell for place, cell in cells.items() if place.dataset == dataset}
        lines += ["", f"## {DATASETS[dataset]}"]
        for p_train in rising(place.p_train for place in chosen):
            for p_test in rising(place.p_test for place in chosen):
                lines += _tables(chosen, p_train, p_test)
        lines += notes_under(chosen, notes.get(dataset, ()))
    return "\n".join(lines) + "\n"


def _tables(cells: Cells, p_train: PMiss, p_test: PMiss) -> list[str]:
    here = {
        (place.method, place.num_clients): cell
        for place, cell in cells.items()
        if (place.p_train, place.p_test) == (p_train, p_test)
    }
    if not here:
        return []
    methods = [name for name in METHODS if any(method == name for method, _ in here)]
    counts = sorted({num_clients for _, num_clients in here})
    header = [f"{k} clients" for k in counts]
    scores = [[METHODS[m] for m in methods]]
    for k in counts:
        scores.append(shown([_value(here.get((m, k))) for m in methods]))
    seeds = [seeds_of(c.num_seeds for (m, _), c in here.items() if m == name) for name in methods]
    times = [[METHODS[m], *_times(here, m, counts)] for m in methods]
    where = f"trained with p {described(p_train)}, tested with p {described(p_test)}"
    return [
        "",
        *table([f"Score, {where}", *header, "seeds"], zip(*scores, seeds, strict=True)),
        "",
        *table(["Milliseconds per step", *header, "per client, 8 over 4"], times),
    ]


def _times(here: Mapping[tuple[str, int], Cell], method: str, counts: list[int]) -> list[str]:
    found = [here.get((method, k)) for k in counts]
    few, many = here.get((method, FEW)), here.get((method, MANY))
    growth = NOTHING
    if few and many:
        ratio = (many.step_ms.mean / MANY) / (few.step_ms.mean / FEW)
        growth = f"{ratio:.2f} ×"
    return [*(f"{cell.step_ms.mean:.2f}" if cell else NOTHING for cell in found), growth]


def _value(cell: Cell | None) -> Value | None:
    return cell.value if cell else None
