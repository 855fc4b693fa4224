"""The picture of an ablation: a row of dots for each variant.

There is a dot for score, steps and seconds each, or one for the score of each client.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from laser_vfl.experiments.grid.ablations import ABLATIONS
from laser_vfl.experiments.grid.case import shown_p
from laser_vfl.experiments.grid.names import DATASETS, UNITS
from laser_vfl.experiments.plots.drawing import INK, MEDIUM, QUIET, RULE, SMALL, page, panel
from laser_vfl.experiments.report.cells import Cell, CellPosition, Cells, Value
from laser_vfl.experiments.report.markdown import seeds_of
from laser_vfl.experiments.report.score_report import described

ROW, HEADING, NAMES, SCORES, OTHERS, GAP, TOP = 0.27, 0.3, 2.5, 3.4, 1.6, 0.4, 1.25
BEST, REST = "#0072B2", "#7A7A7A"
CLIENTS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#7A7A7A")

Groups = Mapping[str, Sequence[tuple[CellPosition, Cell]]]


def ablation_picture(cells: Cells, dataset: str, kind: str) -> Figure:
    """Return the picture of one data set: a group of rows for each number of clients and p."""
    title = DATASETS[dataset]
    order = [variant.name for variant in ABLATIONS[kind].variants]
    groups: dict[str, list[tuple[CellPosition, Cell]]] = {}
    for place, cell in sorted(cells.items(), key=lambda item: _rank(item[0], order)):
        groups.setdefault(_heading(place), []).append((place, cell))
    height = sum(HEADING + ROW * len(rows) for rows in groups.values())
    seeds = seeds_of(cell.num_seeds for cell in cells.values())
    by_client = ABLATIONS[kind].shows_clients
    said = "a dot for each client that predicts" if by_client else "the best of each group is blue"
    figure = page(
        NAMES + SCORES + 2 * (OTHERS + GAP) + 0.6,
        TOP + height + 0.75,
        f"{title.name}: {ABLATIONS[kind].title[0].lower()}{ABLATIONS[kind].title[1:]}",
        f"mean and standard deviation, seeds: {seeds}; {said}",
    )
    score = f"score ({UNITS[title.metric]})"
    if by_client:
        axes = _panel(figure, NAMES, SCORES + OTHERS, height, score)
        names = dict.fromkeys(name for cell in cells.values() for name in cell.by_client)
        colors = dict(zip(names, cycle(CLIENTS), strict=False))
        for middle, cell in _rows(axes, groups):
            _draw_clients(axes, middle, cell, colors)
        _explain(axes, colors)
    else:
        left = NAMES + SCORES + GAP
        panels = (
            _panel(figure, NAMES, SCORES, height, score),
            _panel(figure, left, OTHERS, height, "steps"),
            _panel(figure, left + OTHERS + GAP, OTHERS, height, "seconds of training"),
        )
        best = [max((cell for _, cell in rows), key=_mean) for rows in groups.values()]
        for middle, cell in _rows(panels[0], groups):
            _draw_all(panels, middle, cell, BEST if cell in best else REST)
        for axes in panels[1:]:
            axes.set_xlim(0, axes.get_xlim()[1] * 1.05)
    return figure


def _mean(cell: Cell) -> float:
    return cell.value.mean


def _panel(figure: Figure, left: float, width: float, height: float, name: str) -> Axes:
    axes = panel(figure, left, TOP, width, height)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_title(name, size=MEDIUM, color=INK, loc="left", pad=8)
    return axes


def _rows(axes: Axes, groups: Groups) -> Iterator[tuple[float, Cell]]:
    """Yield the middle of each row, with its name written beside it."""
    y = 0.0
    for heading, rows in groups.items():
        y += HEADING
        _write(axes, heading, y - 0.12, bold=True)
        for place, cell in rows:
            _write(axes, place.variant, y + ROW / 2, bold=False)
            yield y + ROW / 2, cell
            y += ROW


def _draw_all(panels: Sequence[Axes], middle: float, cell: Cell, color: str) -> None:
    values = (cell.value, Value(cell.num_steps, None), cell.seconds)
    for axes, value in zip(panels, values, strict=True):
        _draw(axes, middle, value, color)


def _draw_clients(axes: Axes, middle: float, cell: Cell, colors: Mapping[str, str]) -> None:
    """Draw the dots of a row a little below each other, so that equal ones can be told apart."""
    for number, (name, color) in enumerate(colors.items()):
        value = cell.by_client.get(name)
        if value is not None:
            shift = (number - (len(colors) - 1) / 2) * ROW / len(colors) * 0.7
            _draw(axes, middle + shift, value, color)


def _draw(axes: Axes, y: float, value: Value, color: str) -> None:
    axes.errorbar(value.mean, y, xerr=value.std, fmt="o", color=color, elinewidth=1.2, ms=6)


def _explain(axes: Axes, colors: Mapping[str, str]) -> None:
    for name, color in colors.items():
        axes.plot([], [], "o", color=color, ms=6, label=name)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, fontsize=MEDIUM)


def _write(axes: Axes, text: str, y: float, *, bold: bool) -> None:
    axes.annotate(
        text,
        (0, y),
        xycoords=("axes fraction", "data"),
        xytext=(-10, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        size=SMALL if bold else MEDIUM,
        color=QUIET if bold else INK,
        weight="bold" if bold else "normal",
    )


def _heading(place: CellPosition) -> str:
    same = place.p_train == place.p_test
    p = f"p {described(place.p_train)}" + ("" if same else f", tested with {shown_p(place.p_test)}")
    return f"{place.num_clients} clients, {p}"


def _rank(place: CellPosition, order: Sequence[str]) -> tuple[int, str, str, int]:
    number = order.index(place.variant) if place.variant in order else len(order)
    return place.num_clients, str(place.p_train), str(place.p_test), number
