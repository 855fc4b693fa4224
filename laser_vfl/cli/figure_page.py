"""The page that `align` and `report` draw their pictures on: colours, fonts, and inches."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

OWN, OWN_BAND = "#0072B2", "#DCEBF5"
"""Blue of Okabe and Ito: it can be told from grey by everybody, and in print."""

OTHER, BAND, NO_BLOCK, ABSENT, INK = "#7A7A7A", "#F5F5F5", "#D9D9D9", "#A6A6A6", "#262626"

MARGIN = 0.3
SMALL, MEDIUM, LARGE = 8.0, 9.0, 12.0
"""Sizes of letters, in points."""


@dataclass(frozen=True)
class Page:
    """A figure that is measured in inches from its upper left corner."""

    figure: Figure
    width: float
    height: float

    def axes(self, name: str, left: float, top: float, width: float, height: float) -> Axes:
        """Return axes without a frame."""
        bottom = self.height - top - height
        across, up = self.width, self.height
        box = (left / across, bottom / up, width / across, height / up)
        axes = self.figure.add_axes(box, label=name, facecolor="none")
        for side in axes.spines.values():
            side.set_visible(False)
        axes.tick_params(length=0, labelsize=SMALL, colors=OTHER)
        return axes

    def write(
        self,
        text: str,
        left: float,
        top: float,
        size: float,
        *,
        color: str = INK,
        bold: bool = False,
        align: Literal["left", "right"] = "left",
    ) -> None:
        """Write a line with its upper edge at `top`."""
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            text,
            size=size,
            color=color,
            weight="bold" if bold else "normal",
            ha=align,
            va="top",
            parse_math=False,
        )


@lru_cache(1024)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a line in inches."""
    font = FontProperties(weight="bold" if bold else "normal")
    path = TextPath((0, 0), text, size=size, prop=font)
    return float(path.get_extents().width) / 72
