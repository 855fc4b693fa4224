"""One table in the picture of `align`: bars of samples over a matrix of patterns and clients."""

from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from laser_vfl.cli.figure_page import (
    ABSENT,
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

MAX_PATTERNS = 20
FEW_PATTERNS = 12
"""Up to so many, columns are as wide as their counts; beyond, wide counts are turned."""

GAP, ROW, BARS, SIZES = 0.12, 0.28, 2.3, 1.7
MIN_MATRIX, MIN_PITCH, MAX_PITCH, MAX_BAR = 2.1, 0.34, 0.75, 0.4


class Panel:
    """The picture of one table."""

    def __init__(self, found: dict[str, Any], name: str, table: dict[str, Any]) -> None:
        self._client: str = found["client"]
        self._roster: list[str] = found["roster"]
        self._absent: list[str] = found["absent"]
        self._name = name
        self._table = table
        self._shown = table["patterns"][:MAX_PATTERNS]
        self._num_more = len(table["patterns"]) - len(self._shown)
        counts = [pattern["num_samples"] for pattern in self._shown]
        self._others = table["num_samples"] - sum(counts)
        self._counts = counts + [self._others] * bool(self._num_more)
        self._sizes = dict.fromkeys(self._roster, 0)
        for pattern in table["patterns"]:
            for holder in pattern["blocks"]:
                self._sizes[holder] += pattern["num_samples"]
        rows = len(self._roster) * ROW
        self._rows_height = rows
        self.height = BARS + GAP + rows + 0.3

    @cached_property
    def left(self) -> float:
        """How much room everything to the left of the matrix needs, without the margin."""
        names = SIZES + self._names_width
        facts = max(text_width(line, MEDIUM) for line in self._facts) + 0.3
        return max(names, facts + text_width(f"{max(self._counts):,}", SMALL) + 0.6)

    @cached_property
    def matrix_width(self) -> float:
        """The width of all patterns."""
        return len(self._counts) * self._pitch

    def draw(self, page: Page, left: float, top: float) -> None:
        """Draw with the upper edge at `top`, and the matrix `left` of the margin."""
        start, rows_top = MARGIN + left, top + BARS + GAP
        self._write_facts(page, top)
        self._draw_bars(page.axes(f"{self._name} bars", start, top, self.matrix_width, BARS))
        bands = page.axes(
            f"{self._name} bands", MARGIN, rows_top, left + self.matrix_width, self._rows_height
        )
        self._draw_bands(bands)
        size_width = left - self._names_width
        self._draw_sizes(
            page.axes(f"{self._name} sizes", MARGIN, rows_top, size_width, self._rows_height),
            size_width,
        )
        bottom = rows_top + self._rows_height + 0.07
        page.write(
            "samples of each client", MARGIN + size_width, bottom, SMALL, color=OTHER, align="right"
        )
        matrix = page.axes(
            f"{self._name} matrix", start, rows_top, self.matrix_width, self._rows_height
        )
        self._draw_matrix(matrix)

    @cached_property
    def _names_width(self) -> float:
        return max(text_width(name, MEDIUM, bold=True) for name in self._roster) + 2 * GAP

    @cached_property
    def _pitch(self) -> float:
        """The distance of two patterns."""
        widest = max(text_width(f"{count:,}", SMALL) for count in self._counts) + 0.1
        num = len(self._counts)
        pitch = min(max(widest, MIN_PITCH), MAX_PITCH) if num <= FEW_PATTERNS else MIN_PITCH
        return max(pitch, MIN_MATRIX / num)

    @cached_property
    def _facts(self) -> list[str]:
        table, client = self._table, self._client
        return [
            f"{table['num_samples']:,} samples altogether",
            f"{table['missing_share']:.1%} of their blocks missing",
            f"{table['num_rows']:,} rows of {client}",
            f"{table['num_shared']:,} of them held by others too",
            f"with {client}",
            f"without {client}",
        ]

    def _write_facts(self, page: Page, top: float) -> None:
        page.write(f"table {self._name}", MARGIN, top, MEDIUM + 1, bold=True)
        for place, line in enumerate(self._facts[:-2]):
            page.write(line, MARGIN, top + 0.27 + 0.2 * place, MEDIUM)
        for place, (line, color) in enumerate(zip(self._facts[-2:], (OWN, OTHER), strict=True)):
            below = top + 1.27 + 0.2 * place
            page.write("■", MARGIN, below, MEDIUM, color=color)
            page.write(line, MARGIN + 0.17, below, MEDIUM)

    def _draw_bars(self, axes: Axes) -> None:
        """Draw how many samples each pattern has, with the counts above."""
        highest = self._counts[0]
        axes.set_xlim(-0.5, len(self._counts) - 0.5)
        axes.set_ylim(0, highest * BARS / (BARS - self._counts_height))
        axes.set_xticks([])
        ticks = MaxNLocator(5, integer=True).tick_values(0, highest)
        axes.set_yticks([tick for tick in ticks if tick <= highest])
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylabel("samples", size=SMALL, color=OTHER)
        axes.spines["bottom"].set_visible(True)
        axes.spines["bottom"].set_color(NO_BLOCK)
        width = min(0.62, MAX_BAR / self._pitch)
        own = [self._client in pattern["blocks"] for pattern in self._shown]
        colors = [OWN if held else OTHER for held in own]
        axes.bar(range(len(own)), self._counts[: len(own)], width=width, color=colors)
        if self._num_more:
            self._draw_others(axes, len(own), width, highest)
        for place, (count, held) in enumerate(zip(self._counts, [*own, False], strict=False)):
            axes.annotate(
                f"{count:,}",
                (place, min(count, highest)),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90 if self._is_turned(place) else 0,
                size=SMALL,
                color=OWN if held else INK,
            )

    @cached_property
    def _counts_height(self) -> float:
        """How much room the counts above the bars need."""
        widths = [text_width(f"{count:,}", SMALL) for count in self._counts]
        turned = [width for place, width in enumerate(widths) if self._is_turned(place)]
        return max(turned, default=0.12) + 0.1

    def _is_turned(self, place: int) -> bool:
        """Whether a count is written upwards, as all patterns' are if one of them is too wide."""
        is_others = place >= len(self._shown)
        widest = self._others if is_others else max(self._counts[: len(self._shown)])
        return text_width(f"{widest:,}", SMALL) + 0.05 > self._pitch

    def _draw_others(self, axes: Axes, place: int, width: float, highest: int) -> None:
        """Draw all other patterns as one bar; broken if it would dwarf those that are shown."""
        axes.bar(
            place,
            min(self._others, highest),
            width=width,
            facecolor="white",
            edgecolor=OTHER,
            hatch="/////",
            linewidth=0.8,
        )
        if self._others > highest:
            ends = (place - 0.49, place + 0.49)
            low, rise, gap = 0.78 * highest, 0.04 * highest, 0.035 * highest
            edges = [(low + up, low + up + rise) for up in (0.0, gap)]
            axes.fill_between(ends, edges[0], edges[1], color="white", linewidth=0, zorder=3)
            for edge in edges:
                axes.plot(ends, edge, color=OTHER, linewidth=0.8, zorder=4)

    def _draw_bands(self, axes: Axes) -> None:
        self._as_rows(axes)
        axes.set_xticks([])
        for place, name in enumerate(self._roster):
            color = OWN_BAND if name == self._client else BAND
            if name == self._client or place % 2 == 0:
                axes.axhspan(place - 0.5, place + 0.5, color=color, linewidth=0)

    def _draw_sizes(self, axes: Axes, width: float) -> None:
        """Draw how many samples each client holds, to the left, with the counts at the ends."""
        self._as_rows(axes)
        axes.set_xticks([])
        largest = max(self._sizes.values())
        room = text_width(f"{largest:,}", SMALL) + 0.12
        axes.set_xlim(largest * width / (width - room), 0)
        colors = [self._color_of(name, bar=True) for name in self._roster]
        axes.barh(range(len(colors)), list(self._sizes.values()), height=0.55, color=colors)
        for place, name in enumerate(self._roster):
            axes.annotate(
                "absent" if name in self._absent else f"{self._sizes[name]:,}",
                (self._sizes[name], place),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center_baseline",
                size=SMALL,
                color=self._color_of(name),
            )

    def _draw_matrix(self, axes: Axes) -> None:
        """Draw a column of dots for each pattern, one for each client that took part."""
        self._as_rows(axes)
        axes.set_xlim(-0.5, len(self._counts) - 0.5)
        axes.set_xticks([])
        places = {name: place for place, name in enumerate(self._roster)}
        for name, place in places.items():
            axes.annotate(
                name,
                (-0.5, place),
                xytext=(-GAP * 72, 0),
                textcoords="offset points",
                ha="right",
                va="center_baseline",
                size=MEDIUM,
                color=self._color_of(name),
                weight="bold" if name == self._client else "normal",
                parse_math=False,
            )
        there = [place for name, place in places.items() if name not in self._absent]
        for column, pattern in enumerate(self._shown):
            color = OWN if self._client in pattern["blocks"] else OTHER
            held = [places[name] for name in pattern["blocks"]]
            axes.plot([column, column], [held[0], held[-1]], color=color, linewidth=2, zorder=2)
            # Over the line: a block that is missing in the middle has to be seen.
            axes.scatter([column] * len(there), there, s=46, color=NO_BLOCK, linewidth=0, zorder=3)
            axes.scatter([column] * len(held), held, s=46, color=color, linewidth=0, zorder=4)
        if self._num_more:
            plural = "s" if self._num_more > 1 else ""
            axes.text(
                len(self._shown),
                (len(self._roster) - 1) / 2,
                f"{self._num_more:,} other pattern{plural}",
                size=SMALL,
                color=INK,
                rotation=90,
                ha="center",
                va="center",
            )

    def _as_rows(self, axes: Axes) -> None:
        axes.set_ylim(len(self._roster) - 0.5, -0.5)
        axes.set_yticks([])

    def _color_of(self, name: str, *, bar: bool = False) -> str:
        if name in self._absent:
            return ABSENT
        return OWN if name == self._client else OTHER if bar else INK
