"""Diamonds: the price of a stone from four laboratories, as it comes with plotnine."""

from pathlib import Path

import polars as pl

from laser_vfl.core.randomness import RandomStream, random_permutation
from laser_vfl.experiments.trees.table_set import TableSet, package_file

TEST_SHARE = 0.2


def load_diamonds(data: Path | None) -> TableSet:
    """Read the table; a fifth of it, drawn by chance, is for testing."""
    frame = pl.read_csv(package_file("plotnine", "data", "diamonds.csv"))
    order = random_permutation(len(frame), seed=0, stream=RandomStream.SPLIT, counter=0)
    blocks = {
        "scales": frame.select("carat", "cut"),
        "grading": frame.select("color", "clarity"),
        "cutter": frame.select("depth", "table"),
        "calipers": frame.select("x", "y", "z"),
    }
    return TableSet(
        name="diamonds",
        task="regression",
        blocks=blocks,
        targets=frame["price"].cast(pl.Float64).to_numpy(),
        is_test=order < TEST_SHARE * len(frame),
        labels_at=tuple(blocks),
        note="Diamonds: the price. 80 % of the rows for training and 20 % for testing, by chance; "
        "weight and cut, colour and clarity, proportions, and measures are four organisations', "
        "all of which have labels.",
    )
