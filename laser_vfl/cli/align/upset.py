"""The picture of `align`, an UpSet plot (Lex et al., 2014), and the file that it goes to."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from laser_vfl.atomic_files import replacing
from laser_vfl.cli.align.upset_panel import Panel
from laser_vfl.cli.figure_page import LARGE, MARGIN, MEDIUM, OTHER, Page, text_width
from laser_vfl.core.errors import ConfigError

SUFFIXES = (".png", ".svg", ".pdf")
DPI = 200
BETWEEN_PANELS, TITLE = 0.45, 0.7


def check_picture(path: Path) -> None:
    """Refuse a file that could not be written later on."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--plot {path} is neither .png nor .svg nor .pdf", hint="give it such a suffix"
        )
    with _writing(path), suppress(_Discarded), replacing(path):
        raise _Discarded  # the file before stays


def write_picture(found: dict[str, Any], federation: str, path: Path) -> None:
    """Draw what `operations.align` has found; the file appears when it is complete."""
    # Whatever a person has in a matplotlibrc is meant for other pictures.
    with matplotlib.rc_context(), _writing(path), replacing(path) as temporary:
        matplotlib.rcdefaults()
        figure = draw_overlaps(found, federation)
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=DPI)


def draw_overlaps(found: dict[str, Any], federation: str) -> Figure:
    """Return a figure with a panel for each table that has samples, the first at the top."""
    panels = [
        Panel(found, name, table) for name, table in found["tables"].items() if table["num_samples"]
    ]
    title = f"Federation {federation}: which samples have which blocks"
    absent = f"; {len(found['absent'])} of {len(found['roster'])} clients absent"
    subtitle = f"as {found['client']} sees it, aligned by {found['scheme']}"
    subtitle += absent if found["absent"] else ""
    left = max((panel.left for panel in panels), default=0.0)
    widths = [left + panel.matrix_width for panel in panels]
    widths += [text_width(title, LARGE, bold=True), text_width(subtitle, MEDIUM)]
    heights = [panel.height for panel in panels] or [0.2]
    width = max(widths) + 2 * MARGIN
    height = TITLE + sum(heights) + BETWEEN_PANELS * (len(heights) - 1) + 2 * MARGIN
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    page = Page(figure, width, height)
    page.write(title, MARGIN, MARGIN, LARGE, bold=True)
    page.write(subtitle, MARGIN, MARGIN + 0.26, MEDIUM, color=OTHER)
    if not panels:
        page.write("no table has a sample", MARGIN, MARGIN + TITLE, MEDIUM)
    tops = accumulate((panel.height + BETWEEN_PANELS for panel in panels), initial=MARGIN + TITLE)
    for panel, top in zip(panels, tops, strict=False):
        panel.draw(page, left, top)
    return figure


class _Discarded(Exception):
    """What was written is not to stay."""


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(path), hint="give another --plot"
        ) from None
