"""The scores that the paper reports, read from paper.yaml."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from laser_vfl.experiments.grid.case import PMiss
from laser_vfl.experiments.report.cells import CellPosition, Value

FILE = Path(__file__).parent / "paper.yaml"
NUM_CLIENTS = 4


def paper_value(place: CellPosition) -> Value | None:
    """Return what the paper has for a cell, if it has it."""
    if place.variant or place.num_clients != NUM_CLIENTS:
        return None
    return paper_values().get((place.dataset, place.method, place.p_train, place.p_test))


@cache
def paper_values() -> dict[tuple[str, str, PMiss, PMiss], Value]:
    """Return both tables, by data set, method, p_train and p_test."""
    values: dict[tuple[str, str, PMiss, PMiss], Value] = {}
    for table in yaml.safe_load(FILE.read_text(encoding="utf-8")).values():
        columns = table.pop("columns")
        for dataset, methods in table.items():
            for method, row in methods.items():
                for (p_train, p_test), text in zip(columns, row, strict=True):
                    values[dataset, method, p_train, p_test] = _parsed(text)
    return values


def _parsed(text: Any) -> Value:
    mean, std = str(text).split("±")
    return Value(float(mean), float(std))
