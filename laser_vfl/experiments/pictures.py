"""The pictures of an experiment, whichever kind it is, as PNG files beside its results."""

from collections.abc import Sequence
from pathlib import Path

from laser_vfl.experiments.record import Record
from laser_vfl.experiments.results_file import Line


def write_pictures(record: Record, lines: Sequence[Line], directory: Path) -> list[Path]:
    """Draw what there is to draw, and return the files."""
    return []
