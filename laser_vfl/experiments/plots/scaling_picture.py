"""The picture of `scaling`: score, and the time of a step, against the number of clients."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from laser_vfl.experiments.grid.case import PMiss
from laser_vfl.experiments.grid.names import DATASETS, METHODS, UNITS
from laser_vfl.experiments.plots.drawing import (
    INK,
    MEDIUM,
    QUIET,
    SMALL,
    draw_line,
    legend,
    page,
    panel,
)
from laser_vfl.experiments.report.cells import Cell, Cells, Value
from laser_vfl.experiments.report.markdown import seeds_of
from laser_vfl.experiments.report.score_report import described

PANEL, HEIGHT, BETWEEN, LEFT, TOP, LEGEND = 3.6, 3.3, 0.85, 0.75, 1.15, 2.3


def scaling_picture(cells: Cells, dataset: str, p_train: PMiss, p_test: PMiss) -> Figure:
    """Return the picture of one data set for one pair of probabilities."""
    title = DATASETS[dataset]
    methods = [name for name in METHODS if any(place.method == name for place in cells)]
    seeds = seeds_of(cell.num_seeds for cell in cells.values())
    same = f"trained and tested with p {described(p_train)}"
    apart = f"trained with p {described(p_train)}, tested with p {described(p_test)}"
    figure = page(
        LEFT + 2 * PANEL + BETWEEN + LEGEND,
        TOP + HEIGHT + 0.75,
        f"{title.name}: growing numbers of clients",
        f"{same if p_train == p_test else apart}; mean and standard deviation, seeds: {seeds}",
    )
    scores = panel(figure, LEFT, TOP, PANEL, HEIGHT)
    times = panel(figure, LEFT + PANEL + BETWEEN, TOP, PANEL, HEIGHT)
    times.set_yscale("log")
    _draw(scores, cells, methods, lambda cell: cell.value)
    _draw(times, cells, methods, lambda cell: cell.step_ms)
    _name(scores, f"score ({UNITS[title.metric]})")
    _name(times, "milliseconds per step, all clients in one process")
    times.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    times.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    times.minorticks_off()
    legend(figure, methods, LEFT + 2 * PANEL + BETWEEN + 0.25, TOP)
    return figure


def _draw(axes: Axes, cells: Cells, methods: list[str], value: Callable[[Cell], Value]) -> None:
    counts = sorted({place.num_clients for place in cells})
    axes.set_xticks(counts)
    axes.set_xlim(counts[0] - 0.4, counts[-1] + 0.4)
    for number, method in enumerate(methods):
        aside = 0.05 * (number - (len(methods) - 1) / 2)
        found = sorted((p.num_clients, value(c)) for p, c in cells.items() if p.method == method)
        draw_line(
            axes,
            method,
            [count + aside for count, _ in found],
            [each.mean for _, each in found],
            [each.std or 0.0 for _, each in found],
        )


def _name(axes: Axes, title: str) -> None:
    axes.set_title(title, size=MEDIUM, color=INK, loc="left", pad=8)
    axes.set_xlabel("clients", size=SMALL, color=QUIET, labelpad=6)
