"""The hand that draws all pictures of experiments: colours, letters, axes and files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from laser_vfl.atomic_files import replacing
from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.names import METHODS

INK, QUIET, RULE = "#262626", "#7A7A7A", "#E3E3E3"
SMALL, MEDIUM, LARGE = 8.0, 9.0, 12.0
"""Sizes of letters, in points."""

DPI = 200


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    marker: str
    filled: bool = True
    strong: bool = False


_IN_ORDER: Final = (
    Look("#7A7A7A", "s"),
    Look("#56B4E9", "v"),
    Look("#CC79A7", "P"),
    Look("#009E73", "^"),
    Look("#E69F00", "D"),
    Look("#D55E00", "X"),
    Look("#0072B2", "o", strong=True),
    Look("#0072B2", "o", filled=False, strong=True),
)

LOOKS: Final = dict(zip(METHODS, _IN_ORDER, strict=True))
"""By method: colours of Okabe and Ito, which everybody can tell apart, and shapes for print."""


def page(width: float, height: float, title: str, subtitle: str) -> Figure:
    """Return a figure, measured in inches, with its title in the upper left corner."""
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.3 / width, 1 - 0.26 / height, title, size=LARGE, weight="bold", va="top")
    figure.text(0.3 / width, 1 - 0.52 / height, subtitle, size=MEDIUM, color=QUIET, va="top")
    return figure


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Return axes with faint rules and no frame, `left` and `top` inches from the corner."""
    across, up = figure.get_size_inches()
    box = (left / across, 1 - (top + height) / up, width / across, height / up)
    axes = figure.add_axes(box)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(QUIET)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=INK)
    return axes


def legend(figure: Figure, methods: Iterable[str], left: float, top: float) -> None:
    """Name the methods in a column, each behind its mark."""
    across, up = figure.get_size_inches()
    marks = [
        Line2D([], [], label=METHODS[m], linewidth=line_width(m), markersize=6, **style(m))  # type: ignore[arg-type]
        for m in methods
    ]
    figure.legend(
        handles=marks,
        loc="upper left",
        bbox_to_anchor=(left / across, 1 - top / up),
        frameon=False,
        fontsize=MEDIUM,
        labelspacing=0.8,
        handlelength=2.4,
        borderaxespad=0,
    )


def draw_line(
    axes: Axes, method: str, x: Sequence[float], y: Sequence[float], error: Sequence[float]
) -> None:
    """Draw the points of a method, joined, with their error bars."""
    strong = LOOKS[method].strong
    axes.errorbar(
        x,
        y,
        error,
        linewidth=line_width(method),
        elinewidth=1.0,
        markersize=6.5 if strong else 5.5,
        zorder=4 if strong else 3,
        **style(method),  # type: ignore[arg-type]
    )


def style(method: str) -> dict[str, object]:
    """Return the keywords of a line of a method."""
    look = LOOKS[method]
    return {
        "color": look.color,
        "marker": look.marker,
        "markerfacecolor": look.color if look.filled else "white",
        "markeredgecolor": look.color if not look.filled else "white",
        "markeredgewidth": 0.6 if look.filled else 1.4,
        "linestyle": "-" if look.filled else (0, (4, 2)),
    }


def line_width(method: str) -> float:
    """Return a stronger line for the method that the picture is about."""
    return 2.0 if LOOKS[method].strong else 1.2


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG file, which appears when it is complete."""
    try:
        # Whatever a person has in a matplotlibrc is meant for other pictures.
        with matplotlib.rc_context(), replacing(path) as temporary:
            matplotlib.rcdefaults()
            figure.savefig(temporary, format="png", dpi=DPI)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", where=str(path)) from None
    return path
