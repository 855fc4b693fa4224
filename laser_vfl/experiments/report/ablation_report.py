"""The report of an ablation: score, steps and seconds of each variant."""

from laser_vfl.experiments.grid.ablations import ABLATIONS
from laser_vfl.experiments.grid.case import PMiss
from laser_vfl.experiments.grid.names import DATASETS
from laser_vfl.experiments.report.cells import Cells
from laser_vfl.experiments.report.markdown import notes_under, shown, table
from laser_vfl.experiments.report.score_report import Notes, described, rising


def ablation_report(cells: Cells, notes: Notes, kind: str) -> str:
    """Return the report in Markdown: a table for each data set, number of clients and p."""
    title = ABLATIONS[kind].title
    lines = [
        f"# {title}",
        "",
        "Mean ± sample standard deviation over seeds; the best of a column is bold. Seconds "
        "are of training, for the whole federation in one process.",
    ]
    for dataset in (name for name in DATASETS if any(p.dataset == name for p in cells)):
        chosen = {place: cell for place, cell in cells.items() if place.dataset == dataset}
        lines += ["", f"## {DATASETS[dataset]}"]
        for num_clients in sorted({place.num_clients for place in chosen}):
            for p_train in rising(place.p_train for place in chosen):
                for p_test in rising(place.p_test for place in chosen):
                    lines += _table(chosen, kind, num_clients, p_train, p_test)
        lines += notes_under(chosen, notes.get(dataset, ()))
    return "\n".join(lines) + "\n"


def _table(cells: Cells, kind: str, num_clients: int, p_train: PMiss, p_test: PMiss) -> list[str]:
    here = {
        place.variant: cell
        for place, cell in cells.items()
        if (place.num_clients, place.p_train, place.p_test) == (num_clients, p_train, p_test)
    }
    found = {v.name: here[v.name] for v in ABLATIONS[kind].variants if v.name in here}
    if not found:
        return []
    clients = []
    scores = shown([cell.value for cell in found.values()])
    if ABLATIONS[kind].shows_clients:
        # Variants are scored at different clients: only the scores of one client compare.
        clients = list(dict.fromkeys(name for cell in found.values() for name in cell.by_client))
        scores = [str(cell.value) for cell in found.values()]
    columns = [
        list(found),
        scores,
        *(shown([cell.by_client.get(name) for cell in found.values()]) for name in clients),
        [f"{cell.num_steps:,.0f}" for cell in found.values()],
        [str(cell.seconds) for cell in found.values()],
        [str(cell.num_seeds) for cell in found.values()],
    ]
    p = f"trained with p {described(p_train)}, tested with p {described(p_test)}"
    header = [f"{num_clients} clients, {p}", "score", *clients, "steps", "seconds", "seeds"]
    return ["", *table(header, zip(*columns, strict=True))]
