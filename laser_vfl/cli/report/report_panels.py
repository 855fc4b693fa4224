"""The three parts of the picture of `report`."""

from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from laser_vfl.cli.figure_page import (
    BAND,
    INK,
    MARGIN,
    MEDIUM,
    NO_BLOCK,
    OTHER,
    OWN,
    OWN_BAND,
    SMALL,
    Page,
    text_width,
)
from laser_vfl.cli.report.report_text import label_of, worth_text

LESS = "#D55E00"
"""Vermilion of Okabe and Ito, for what makes predictions worse."""

MAX_SUBSETS = 31
GAP, ROW, STEMS, PITCH, MAX_PITCH, AXIS = 0.12, 0.25, 1.9, 0.36, 1.1, 0.62

HALO = [withStroke(linewidth=2.5, foreground="white")]
"""Around numbers that lie over lines."""

Limits = tuple[float, float]


def score_limits(report: dict[str, Any]) -> Limits:
    """Return the range of all scores, with some air; the same in all panels."""
    found = [entry["score"] for entry in report["subsets"]] + [report["constant"]]
    known = [score for score in found if score is not None] or [0.0, 1.0]
    air = max(0.12 * (max(known) - min(known)), 0.01)
    return min(known) - air, max(known) + 1.6 * air


def draw_curve(axes: Axes, report: dict[str, Any], limits: Limits) -> None:
    """Draw the mean score of subsets that lack 0, 1, 2, ... blocks, and how far they spread."""
    points, num_blocks = report["curve"], len(report["blocks"])
    _score_axis(axes, limits, label_of(report))
    axes.set_xlim(-0.35, num_blocks - 0.65)
    axes.set_xticks(range(0, num_blocks, -(-num_blocks // 12)))
    axes.set_xlabel("blocks missing", size=SMALL, color=OTHER)
    missing = [point["num_missing"] for point in points]
    means = [point["mean"] for point in points]
    lowest, highest = ([point[name] for point in points] for name in ("min", "max"))
    axes.fill_between(missing, lowest, highest, color=OWN_BAND, linewidth=0)
    axes.vlines(missing, lowest, highest, color=OWN, alpha=0.35, linewidth=5)
    axes.plot(missing, means, color=OWN, linewidth=2, marker="o", markersize=6)
    _draw_constant(axes, report["constant"])
    for point in points if len(points) <= 8 else points[:: -(-len(points) // 8)]:
        axes.annotate(
            f"{point['mean']:.3f}",
            (point["num_missing"], point["max"]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            size=SMALL,
            color=OWN,
            path_effects=HALO,
        )


def draw_values(axes: Axes, values: list[dict[str, Any]], own: str | None, width: float) -> None:
    """Draw a bar for each block, the most valuable at the top."""
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xticks([])
    texts = [worth_text(entry) for entry in values]
    reach = [(entry["value"] or 0.0, entry["standard_error"] or 0.0) for entry in values]
    lowest = min([0.0, *(value - error for value, error in reach)])
    highest = max([0.0, *(value + error for value, error in reach)])
    room = max(text_width(text, SMALL) for text in texts) + 0.15
    scale = ((highest - lowest) or 1.0) / max(width - room * (2 if lowest < 0 else 1), 0.3)
    axes.set_xlim(lowest - (room * scale if lowest < 0 else 0), highest + room * scale)
    axes.axvline(0, color=NO_BLOCK, linewidth=1, zorder=3)
    for place, (entry, text) in enumerate(zip(values, texts, strict=True)):
        value, error = reach[place]
        is_own = entry["block"] == own
        _band(axes, place, is_own=is_own)
        color = LESS if value < 0 else OWN
        axes.barh(place, value, height=0.6, color=color)
        if error:
            axes.errorbar(value, place, xerr=error, color=INK, linewidth=1, capsize=2)
        end = value - error if value < 0 else value + error
        axes.annotate(
            text,
            (end, place),
            xytext=(-4 if value < 0 else 4, 0),
            textcoords="offset points",
            ha="right" if value < 0 else "left",
            va="center_baseline",
            size=SMALL,
            color=INK if entry["value"] is not None else OTHER,
        )
        _name(axes, entry["block"], place, axes.get_xlim()[0], bold=is_own)


class SubsetPanel:
    """The scores of subsets, the best first, over a matrix of the blocks in them."""

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report
        self._blocks: list[str] = report["blocks"]
        known = [entry for entry in report["subsets"] if entry["score"] is not None]
        self._shown = known if len(known) <= MAX_SUBSETS else best_and_worst(known)
        self._num_all = len(known)
        self._num_sizes = len({len(entry["blocks"]) for entry in known})
        self._rows_height = ROW * len(self._blocks)
        self.height = STEMS + GAP + self._rows_height

    @property
    def title(self) -> str:
        """What is shown."""
        if len(self._shown) == self._num_all:
            return "Every subset of blocks, the best first"
        sizes = {len(entry["blocks"]) for entry in self._shown}
        each = "each size" if len(sizes) == self._num_sizes else f"{len(sizes)} sizes"
        return f"The best and the worst subset of {each}, of {self._num_all:,} subsets"

    @cached_property
    def width(self) -> float:
        """How wide it has to be, without margins."""
        return self._left + PITCH * max(len(self._shown), 1)

    @cached_property
    def _left(self) -> float:
        names = [text_width(name, MEDIUM, bold=True) for name in self._blocks]
        return max([AXIS, *(name + 2 * GAP for name in names)])

    def draw(self, page: Page, top: float, limits: Limits) -> None:
        """Draw with the upper edge at `top`, across the page."""
        num = max(len(self._shown), 1)
        room = page.width - 2 * MARGIN - self._left
        pitch = min(room / num, MAX_PITCH)
        start, rows_top = MARGIN + self._left, top + STEMS + GAP
        stems = page.axes("stems", start, top, pitch * num, STEMS)
        self._draw_stems(stems, limits, num, pitch)
        across = self._left + pitch * num
        bands = page.axes("bands", MARGIN, rows_top, across, self._rows_height)
        self._as_rows(bands)
        own = self._report["shapley"].get("own")
        for place, name in enumerate(self._blocks):
            _band(bands, place, is_own=name == own)
        matrix = page.axes("matrix", start, rows_top, pitch * num, self._rows_height)
        self._draw_matrix(matrix, num)

    def _draw_stems(self, axes: Axes, limits: Limits, num: int, pitch: float) -> None:
        _score_axis(axes, limits, label_of(self._report))
        axes.set_xlim(-0.5, num - 0.5)
        axes.set_xticks([])
        constant = self._report["constant"]
        foot = limits[0] if constant is None else constant
        scores = [entry["score"] for entry in self._shown]
        axes.vlines(range(len(scores)), foot, scores, color=OWN, alpha=0.35, linewidth=5)
        axes.plot(range(len(scores)), scores, "o", color=OWN, markersize=6)
        _draw_constant(axes, constant)
        is_turned = text_width("0.000", SMALL) + 0.03 > pitch
        for place, score in enumerate(scores):
            axes.annotate(
                f"{score:.3f}",
                (place, max(score, foot)),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90 if is_turned else 0,
                size=SMALL,
                color=INK,
                path_effects=HALO,
            )

    def _draw_matrix(self, axes: Axes, num: int) -> None:
        self._as_rows(axes)
        axes.set_xlim(-0.5, num - 0.5)
        own = self._report["shapley"].get("own")
        for place, name in enumerate(self._blocks):
            _name(axes, name, place, -0.5, bold=name == own, gap=GAP)
        columns = [[self._blocks.index(name) for name in entry["blocks"]] for entry in self._shown]
        ends = [(held[0], held[-1]) for held in columns]
        lowest, highest = ([end[side] for end in ends] for side in (0, 1))
        axes.vlines(range(len(columns)), lowest, highest, color=OWN, linewidth=2, zorder=2)
        # Over the lines: a block that is missing in the middle has to be seen.
        every = [(column, place) for column in range(num) for place in range(len(self._blocks))]
        blue = [(column, place) for column, held in enumerate(columns) for place in held]
        for dots, color, order in ((every, NO_BLOCK, 3), (blue, OWN, 4)):
            across, down = ([dot[side] for dot in dots] for side in (0, 1))
            axes.scatter(across, down, s=40, color=color, linewidth=0, zorder=order)

    def _as_rows(self, axes: Axes) -> None:
        axes.set_ylim(len(self._blocks) - 0.5, -0.5)
        axes.set_yticks([])
        axes.set_xticks([])


def best_and_worst(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return two subsets of each size at most, of sizes that are evenly spread, the best first."""
    sizes = sorted({len(entry["blocks"]) for entry in entries})
    num = min(len(sizes), MAX_SUBSETS // 2)
    places = [round(i * (len(sizes) - 1) / max(num - 1, 1)) for i in range(num)]
    chosen = []
    for size in [sizes[place] for place in places]:
        alike = [entry for entry in entries if len(entry["blocks"]) == size]
        chosen += [alike[0], alike[-1]] if len(alike) > 1 else alike
    return [entry for entry in entries if any(entry is one for one in chosen)]


def _score_axis(axes: Axes, limits: Limits, label: str) -> None:
    # No score is above 1, though numbers are written there.
    found = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(*limits)
    axes.set_yticks([tick for tick in found if limits[0] <= tick <= min(limits[1], 1)])
    axes.set_ylim(*limits)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.2f}"))
    axes.set_ylabel(label, size=SMALL, color=OTHER)
    axes.grid(axis="y", color=NO_BLOCK, linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_constant(axes: Axes, constant: float | None) -> None:
    if constant is None:
        return
    axes.axhline(constant, color=OTHER, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"best constant {constant:.3f}",
        (0, constant),
        xycoords=("axes fraction", "data"),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        size=SMALL,
        color=OTHER,
    )


def _band(axes: Axes, place: int, *, is_own: bool) -> None:
    if is_own or place % 2 == 0:
        axes.axhspan(place - 0.5, place + 0.5, color=OWN_BAND if is_own else BAND, linewidth=0)


def _name(
    axes: Axes, name: str, place: int, left: float, *, bold: bool = False, gap: float = 0.1
) -> None:
    axes.annotate(
        name,
        (left, place),
        xytext=(-gap * 72, 0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        size=MEDIUM,
        color=INK,
        weight="bold" if bold else "normal",
        parse_math=False,
    )
