"""Credit: will a client of a Taiwanese bank default on next month's credit card payment?"""

import io
from pathlib import Path

import numpy as np
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.files import NpzFile
from laser_vfl.data.sets.column_cuts import column_blocks
from laser_vfl.data.sets.dataset import DataSet, Samples, checked_labels, stratified_test
from laser_vfl.data.sets.file_tree import Tree
from laser_vfl.data.sets.source import Source

_STEM = "default of credit card clients"
_SHEETS = (".csv", ".xlsx", ".xls")

SOURCE = Source(
    name="credit",
    title="Default of Credit Card Clients",
    task="binary",
    metric="f1",
    num_classes=2,
    get_it="UCI Machine Learning Repository, data set 350, DOI 10.24432/C55S3H",
    markers=tuple(_STEM + suffix for suffix in _SHEETS),
    archives=("default*credit*card*clients.zip",),
    compact="credit_default.npz",
    compact_sha256="a74a8c22d62f9433d2c59c87c742eaa71482e89f1956ca30e56a2c337c3e7e41",
)
TEST_SHARE = 0.2
FEATURES = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
LABEL = "default payment next month"
_NUMBERED = {**{f"X{i}": name for i, name in enumerate(FEATURES, start=1)}, "Y": LABEL}
_SPLIT_NOTE = (
    "Credit has no official split: these are 80 % for training and 20 % for testing, "
    "stratified, drawn with seed 0."
)


def from_official(tree: Tree) -> DataSet:
    """Read the UCI table: CSV, or the spreadsheet where polars has an engine for it."""
    name = next(name for name in SOURCE.markers if tree.has(name))
    with tree.open(name) as file:
        content = file.read()
    frame = _csv(content) if name.endswith(".csv") else _sheet(content, f"{tree.path}/{name}")
    return _data_set(
        frame.select(FEATURES).to_numpy().astype(np.float32),
        frame[LABEL].to_numpy(),
        str(tree.path),
    )


def from_compact(path: Path) -> DataSet:
    """Read the compact file."""
    with NpzFile(path) as file:
        features = file.read_block("X").astype(np.float32)
        return _data_set(features, file.read_column("y"), str(path))


def _data_set(features: np.ndarray, labels: np.ndarray, where: str) -> DataSet:
    samples = Samples(features, checked_labels(labels, 0, 2, where))
    is_test = stratified_test(samples.labels, TEST_SHARE)
    train, test = samples.part(~is_test), samples.part(is_test)
    return SOURCE.data_set(train, test, column_blocks, (_SPLIT_NOTE,))


def _csv(content: bytes) -> pl.DataFrame:
    return _named(pl.read_csv(content, infer_schema=False))


def _sheet(content: bytes, where: str) -> pl.DataFrame:
    try:
        frame = pl.read_excel(io.BytesIO(content), infer_schema_length=0)
    except ModuleNotFoundError as error:
        raise DataError(
            f"no reader for spreadsheets is installed ({error.name or 'fastexcel'})",
            hint=f'save it as "{_STEM}.csv" in the same place',
            where=where,
        ) from None
    return _named(frame)


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return numbers under the official names; the sheet has X1, X2, … in a line above them."""
    if LABEL not in frame.columns and frame.height and LABEL in map(str, frame.row(0)):
        names = [str(name) for name in frame.row(0)]
        frame = frame.slice(1).rename(dict(zip(frame.columns, names, strict=True)))
    frame = frame.rename({k: v for k, v in _NUMBERED.items() if k in frame.columns})
    missing = [name for name in (*FEATURES, LABEL) if name not in frame.columns]
    if missing:
        raise ValueError(f'there is no column "{missing[0]}"')
    return frame.select(pl.col(*FEATURES, LABEL).cast(pl.String).str.strip_chars().cast(pl.Float64))
