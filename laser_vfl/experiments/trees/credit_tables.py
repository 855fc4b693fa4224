"""Credit: a bank's accounts, a bureau's payment history, bills, and payments."""

from pathlib import Path

import numpy as np
import polars as pl

from laser_vfl.data.sets import load_set
from laser_vfl.data.sets.credit import FEATURES
from laser_vfl.experiments.trees.table_set import TableSet

_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE")


def load_credit(data: Path | None) -> TableSet:
    """Read it as `load_set` does, with codes as categories and all 23 columns."""
    found = load_set("credit", data)
    features = np.concatenate([found.train.features, found.test.features])
    frame = pl.DataFrame(features, list(FEATURES)).with_columns(
        pl.col(_CATEGORIES).cast(pl.Int64).cast(pl.String)
    )
    blocks = {
        "bank": frame.select(FEATURES[:5]),
        "bureau": frame.select(FEATURES[5:11]),
        "biller": frame.select(FEATURES[11:17]),
        "payments": frame.select(FEATURES[17:]),
    }
    return TableSet(
        name="credit",
        task="binary",
        blocks=blocks,
        targets=np.concatenate([found.train.labels, found.test.labels]),
        is_test=np.arange(len(frame)) >= len(found.train),
        labels_at=tuple(blocks),
        note="Credit: default on a payment. 80 % of the rows for training and 20 % for testing, "
        "stratified; account, repayment status, bills and payments are four organisations', "
        "all of which have labels.",
    )
