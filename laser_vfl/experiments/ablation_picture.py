"""The picture of an ablation: a row of dots for each variant, for score, steps and seconds."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from laser_vfl.experiments.ablations import ABLATIONS
from laser_vfl.experiments.case import shown_p
from laser_vfl.experiments.cells import Cell, Cells, Place, Value
from laser_vfl.experiments.drawing import INK, MEDIUM, QUIET, RULE, SMALL, page, panel
from laser_vfl.experiments.markdown import seeds_of
from laser_vfl.experiments.names import DATASETS, UNITS
from laser_vfl.experiments.score_report import described

ROW, HEADING, NAMES, SCORES, OTHERS, GAP, TOP = 0.27, 0.3, 2.5, 3.4, 1.6, 0.4, 1.25
BEST, REST = "#0072B2", "#7A7A7A"


def ablation_picture(cells: Cells, dataset: str, kind: str) -> Figure:
    """Return the picture of one data set: a group of rows for each number of clients and p."""
    title = DATASETS[dataset]
    order = [variant.name for variant in ABLATIONS[kind].variants]
    groups: dict[str, list[tuple[Place, Cell]]] = {}
    for place, cell in sorted(cells.items(), key=lambda item: _rank(item[0], order)):
        groups.setdefault(_heading(place), []).append((place, cell))
    height = sum(HEADING + ROW * len(rows) for rows in groups.values())
    seeds = seeds_of(cell.num_seeds for cell in cells.values())
    compares = not ABLATIONS[kind].shows_clients
    said = "the best score of each group is blue"
    if not compares:
        said = "over the clients that have a score, which differ"
    figure = page(
        NAMES + SCORES + 2 * (OTHERS + GAP) + 0.6,
        TOP + height + 0.75,
        f"{title.name}: {ABLATIONS[kind].title[0].lower()}{ABLATIONS[kind].title[1:]}",
        f"mean and standard deviation, seeds: {seeds}; {said}",
    )
    left = NAMES
    panels = []
    for width in (SCORES, OTHERS, OTHERS):
        panels.append(panel(figure, left, TOP, width, height))
        left += width + GAP
    _fill(panels, list(groups.items()), height, compares)
    names = (f"score ({UNITS[title.metric]})", "steps", "seconds of training")
    for axes, name in zip(panels, names, strict=True):
        axes.set_title(name, size=MEDIUM, color=INK, loc="left", pad=8)
    return figure


def _fill(
    panels: Sequence[Axes],
    groups: Sequence[tuple[str, list[tuple[Place, Cell]]]],
    height: float,
    compares: bool,
) -> None:
    for axes in panels:
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    y = 0.0
    for heading, rows in groups:
        y += HEADING
        _write(panels[0], heading, y - 0.12, bold=True)
        best = max(cell.value.mean for _, cell in rows)
        for place, cell in rows:
            middle = y + ROW / 2
            _write(panels[0], place.variant, middle, bold=False)
            color = BEST if compares and cell.value.mean == best else REST
            values = (cell.value, Value(cell.num_steps, None), cell.seconds)
            for axes, value in zip(panels, values, strict=True):
                axes.errorbar(
                    value.mean, middle, xerr=value.std, fmt="o", color=color, elinewidth=1.2, ms=6
                )
            y += ROW
    for axes in panels[1:]:
        axes.set_xlim(0, axes.get_xlim()[1] * 1.05)


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


def _heading(place: Place) -> str:
    same = place.p_train == place.p_test
    p = f"p {described(place.p_train)}" + ("" if same else f", tested with {shown_p(place.p_test)}")
    return f"{place.num_clients} clients, {p}"


def _rank(place: Place, order: Sequence[str]) -> tuple[int, str, str, int]:
    number = order.index(place.variant) if place.variant in order else len(order)
    return place.num_clients, str(place.p_train), str(place.p_test), number
