"""The picture of `report`: the curve, what each block is worth, and the subsets below."""

import io
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from laser_vfl.cli.figure_page import LARGE, MARGIN, MEDIUM, OTHER, Page, text_width
from laser_vfl.cli.report.report_content import sentences
from laser_vfl.cli.report.report_panels import SubsetPanel, draw_curve, draw_values, score_limits
from laser_vfl.cli.report.report_text import by_worth, curve_title, heading, label_of

DPI = 200
SPACE, SPARE = 0.05, 1.06
"""Between words, in inches; and by how much letters on a grid of pixels are wider."""

MIN_WIDTH, LINE, GAP, AXIS, TICKS = 10.0, 0.2, 0.5, 0.62, 0.5
"""In inches: the page, a line of words, between panels, left of an axis, and below one."""

CURVE_WIDTH, MIN_CURVE, MAX_CURVE, MIN_VALUES, MIN_BAR, MAX_BAR = 4.2, 2.5, 3.2, 2.5, 0.26, 0.45


def picture(report: dict[str, Any]) -> bytes:
    """Return the picture as PNG."""
    # Whatever a person has in a matplotlibrc is meant for other pictures.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        content = io.BytesIO()
        draw_report(report).savefig(content, format="png", dpi=DPI)
    return content.getvalue()


def draw_report(report: dict[str, Any]) -> Figure:
    """Return the figure, as wide as its subsets need."""
    subsets = SubsetPanel(report)
    values = by_worth(report["shapley"]["values"])
    names = max(text_width(entry["block"], MEDIUM, bold=True) for entry in values) + 0.15
    left = MARGIN + CURVE_WIDTH + GAP
    width = max(MIN_WIDTH, subsets.width + 2 * MARGIN, left + names + MIN_VALUES + MARGIN)
    room = width - 2 * MARGIN
    words = [line for text in (heading(report), *sentences(report)) for line in wrapped(text, room)]
    top = MARGIN + 0.3 + LINE * len(words) + 0.3
    panel = max(MIN_CURVE, MIN_BAR * len(values))
    middle = top + LINE + 0.1
    below = middle + panel + TICKS + 0.35
    height = below + LINE + 0.1 + subsets.height + MARGIN
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    page = Page(figure, width, height)
    title = f"Federation {report['federation']}: what each block is worth"
    page.write(title, MARGIN, MARGIN, LARGE, bold=True)
    for place, line in enumerate(words):
        page.write(line, MARGIN, MARGIN + 0.3 + LINE * place, MEDIUM, color=OTHER)

    label, limits = label_of(report), score_limits(report)
    page.write(curve_title(report), MARGIN, top, MEDIUM, bold=True)
    start, curve_width = MARGIN + AXIS, CURVE_WIDTH - AXIS
    high = min(panel, MAX_CURVE)
    draw_curve(page.axes("curve", start, middle, curve_width, high), report, limits)
    page.write(f"Shapley values of the blocks, {label}", left, top, MEDIUM, bold=True)
    across = width - MARGIN - left - names
    bar = min(panel / len(values), MAX_BAR)
    bars = page.axes("values", left + names, middle, across, bar * len(values))
    draw_values(bars, values, report["shapley"].get("own"), across)
    page.write(subsets.title, MARGIN, below, MEDIUM, bold=True)
    subsets.draw(page, below + LINE + 0.1, limits)
    return figure


def wrapped(text: str, room: float) -> list[str]:
    """Break a sentence into lines that fit."""
    lines: list[list[str]] = []
    used = room
    for word in text.split():
        width = SPARE * text_width(word, MEDIUM) + SPACE
        if used + width > room:
            lines.append([])
            used = 0.0
        lines[-1].append(word)
        used += width
    return [" ".join(line) for line in lines]
