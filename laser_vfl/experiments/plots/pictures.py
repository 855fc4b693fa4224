"""The pictures of an experiment, whichever kind it is, as PNG files beside its results."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from laser_vfl.experiments.grid.case import shown_p
from laser_vfl.experiments.grid.names import DATASETS
from laser_vfl.experiments.plots.ablation_picture import ablation_picture
from laser_vfl.experiments.plots.drawing import save
from laser_vfl.experiments.plots.scaling_picture import scaling_picture
from laser_vfl.experiments.plots.score_picture import score_picture
from laser_vfl.experiments.report.cells import Cells, cells_of
from laser_vfl.experiments.runner.experiment_record import Record
from laser_vfl.experiments.runner.results_file import ScoreLine

ABLATION = "ablation "


def write_pictures(record: Record, lines: Sequence[ScoreLine], directory: Path) -> list[Path]:
    """Draw a picture for each data set, and return the files."""
    cells = cells_of(lines)
    paths = []
    for dataset in DATASETS:
        chosen = {place: cell for place, cell in cells.items() if place.dataset == dataset}
        if chosen:
            paths += [
                save(figure, directory / f"{name}.png")
                for name, figure in _figures(record.kind, chosen, dataset).items()
            ]
    return paths


def _figures(kind: str, cells: Cells, dataset: str) -> dict[str, Figure]:
    """Return the pictures of one data set by the names of their files."""
    if kind.startswith(ABLATION):
        return {dataset: ablation_picture(cells, dataset, kind.removeprefix(ABLATION))}
    figures = {}
    if kind == "scaling":
        for pair in sorted({(p.p_train, p.p_test) for p in cells}, key=str):
            chosen = {p: cell for p, cell in cells.items() if (p.p_train, p.p_test) == pair}
            suffix = "-".join(map(shown_p, pair))
            figures[f"{dataset}-{suffix}"] = scaling_picture(chosen, dataset, *pair)
        return figures
    counts = sorted({place.num_clients for place in cells})
    for count in counts:
        chosen = {place: cell for place, cell in cells.items() if place.num_clients == count}
        suffix = f"-{count}-clients" if counts != [4] else ""
        figures[f"{dataset}{suffix}"] = score_picture(chosen, dataset)
    return figures
