"""Columns that are no plain numbers, added to the tables of a client: a category, a date, gaps."""

from pathlib import Path

import numpy as np
import polars as pl

CITIES = ["Oslo", "Lima", "Rome", "Kyiv", "Pune"]


def add_mixed_columns(directory: Path, name: str) -> None:
    """Add `city` and `since` to a client's CSV files, and take some values out of them."""
    for table in ("train", "test"):
        path = directory / f"{name}_{table}.csv"
        if not path.exists():
            continue
        frame = pl.read_csv(path, infer_schema=False)
        rng = np.random.default_rng([len(frame), len(name)])
        city = rng.integers(len(CITIES) + 1, size=len(frame))
        day = rng.integers(1, 29, size=len(frame))
        is_gap = pl.Series(rng.random(len(frame)) < 0.2)
        feature = next(column for column in frame.columns if column.startswith("x"))
        frame.with_columns(
            pl.Series("city", [CITIES[k] if k < len(CITIES) else None for k in city.tolist()]),
            pl.Series("since", [f"2013-{1 + d % 12:02}-{d:02} {d % 24}:30" for d in day.tolist()]),
            pl.when(is_gap).then(None).otherwise(pl.col(feature)).alias(feature),
        ).write_csv(path)
