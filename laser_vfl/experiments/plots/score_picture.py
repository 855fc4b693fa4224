"""The picture of `table` and `nonuniform`: score against p_test, a panel for each p_train."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laser_vfl.experiments.grid.case import PMiss, shown_p
from laser_vfl.experiments.grid.names import DATASETS, METHODS, UNITS, profile_of
from laser_vfl.experiments.grid.paper import paper_value
from laser_vfl.experiments.plots.drawing import (
    INK,
    LOOKS,
    MEDIUM,
    QUIET,
    SMALL,
    draw_line,
    legend,
    page,
    panel,
)
from laser_vfl.experiments.report.cells import Cell, Cells
from laser_vfl.experiments.report.markdown import seeds_of
from laser_vfl.experiments.report.score_report import described, rising

PANEL, HEIGHT, GAP, LEFT, TOP, LEGEND = 2.7, 3.3, 0.3, 0.75, 1.15, 2.2
DODGE = 0.075
"""How far methods stand apart, so that their error bars do not cover each other."""


def score_picture(cells: Cells, dataset: str) -> Figure:
    """Return the picture of one data set."""
    trained = rising(place.p_train for place in cells)
    tested = rising(place.p_test for place in cells)
    methods = [name for name in METHODS if any(place.method == name for place in cells)]
    width = LEFT + len(trained) * (PANEL + GAP) + LEGEND
    title = DATASETS[dataset]
    seeds = seeds_of(cell.num_seeds for cell in cells.values())
    has_paper = any(paper_value(place) for place in cells)
    ticks = "; short bars: the paper's means" if has_paper else ""
    over = "one seed" if seeds == "1" else f"mean and standard deviation over {seeds} seeds"
    figure = page(
        max(width, 7.5),
        TOP + HEIGHT + 0.75,
        f"{title.name}: scores with missing blocks",
        f"{over}{ticks}",
    )
    low, high = _limits(cells)
    for place, p_train in enumerate(trained):
        axes = panel(figure, LEFT + place * (PANEL + GAP), TOP, PANEL, HEIGHT)
        axes.set_ylim(low, high)
        axes.set_title(
            f"trained with p {described(p_train)}", size=MEDIUM, color=INK, loc="left", pad=8
        )
        chosen = {p: cell for p, cell in cells.items() if p.p_train == p_train}
        _draw(axes, chosen, methods, tested)
        axes.set_xlabel("p that a block is missing in testing", size=SMALL, color=QUIET, labelpad=6)
        if place:
            axes.set_yticklabels([])
        else:
            axes.set_ylabel(UNITS[title.metric], size=SMALL, color=QUIET)
    legend(figure, methods, LEFT + len(trained) * (PANEL + GAP) + 0.1, TOP)
    return figure


def _draw(axes: Axes, cells: Cells, methods: Sequence[str], tested: Sequence[PMiss]) -> None:
    axes.set_xlim(-0.5, len(tested) - 0.5)
    names = ["Beta(2, 2)" if p == "beta" else shown_p(p) for p in tested]
    axes.set_xticks(range(len(tested)), names)
    low = axes.get_ylim()[0]
    for number, method in enumerate(methods):
        aside = DODGE * (number - (len(methods) - 1) / 2)
        row = {p.p_test: (p, cell) for p, cell in cells.items() if p.method == method}
        found = [(x + aside, *row[p]) for x, p in enumerate(tested) if p in row]
        draw_line(
            axes,
            method,
            [x for x, _, _ in found],
            [cell.value.mean for _, _, cell in found],
            [_bar(cell, low) for _, _, cell in found],
        )
        for x, place, cell in found:
            in_paper = paper_value(place)
            if in_paper and in_paper.mean >= low:
                ends = (x - DODGE / 2, x + DODGE / 2)
                axes.plot(
                    ends, [in_paper.mean] * 2, color=LOOKS[method].color, linewidth=1.6, zorder=5
                )
            if cell.value.mean < low:
                _point_below(axes, x, cell, LOOKS[method].color)


def _bar(cell: Cell, low: float) -> float:
    """Return the length of an error bar; a point that is not shown has none."""
    return cell.value.std or 0.0 if cell.value.mean >= low else 0.0


def _point_below(axes: Axes, x: float, cell: Cell, color: str) -> None:
    axes.annotate(
        f"▾ {cell.value.mean:.0f}",
        (x, axes.get_ylim()[0]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        size=SMALL,
        color=color,
    )


def _limits(cells: Cells) -> tuple[float, float]:
    """Return the range of all methods, but downwards of those that do not fall, with some air."""
    lows, highs = [], []
    for place, cell in cells.items():
        for value in (cell.value, paper_value(place) or cell.value):
            highs.append(value.mean + (value.std or 0.0))
            # A method at chance as soon as blocks are missing would press all others flat.
            if not profile_of(place.method).needs_all_blocks:
                lows.append(value.mean - (value.std or 0.0))
    low, high = min(lows, default=0.0), max(highs)
    air = max(0.06 * (high - low), 0.5)
    return max(low - 1.5 * air, 0.0), min(high + air, 100.5)
