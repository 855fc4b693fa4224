"""HAPT: human activities and postural transitions, from a telephone's motion sensors."""

import io
from pathlib import Path

import numpy as np

from laser_vfl.data.files import NpzFile
from laser_vfl.data.sets.column_cuts import column_blocks
from laser_vfl.data.sets.dataset import DataSet, Floats, Samples, checked_labels
from laser_vfl.data.sets.file_tree import Tree
from laser_vfl.data.sets.source import Source

SOURCE = Source(
    name="hapt",
    title="Smartphone-Based Recognition of Human Activities and Postural Transitions (HAPT)",
    task="multiclass",
    metric="accuracy",
    num_classes=12,
    get_it="UCI Machine Learning Repository, data set 341, DOI 10.24432/C54G7M",
    markers=("Train/X_train.txt",),
    archives=("hapt*.zip", "smartphone*postural*.zip"),
    compact="hapt_derived561.npz",
    compact_sha256="2461127f129fc06070b3413065b7da86b6b80f3a16c9c1160095700130bbc777",
)
NUM_FEATURES = 561


def from_official(tree: Tree) -> DataSet:
    """Read Train/ and Test/ of the official layout."""
    train, test = (_official_table(tree, table) for table in ("Train", "Test"))
    notes = ("HAPT: the official features, with the official split by person.",)
    return SOURCE.data_set(train, test, column_blocks, notes)


def from_compact(path: Path) -> DataSet:
    """Read the compact file."""
    with NpzFile(path) as file:
        train, test = (
            Samples(
                file.read_block(f"X_{table}").astype(np.float32),
                checked_labels(file.read_column(f"y_{table}"), 1, SOURCE.num_classes, str(path)),
            )
            for table in ("train", "test")
        )
    notes = (
        "HAPT: features re-derived from the HAPT raw signals; windows, labels and the split by "
        "person are the official ones, feature values are close to the official ones, not equal.",
    )
    return SOURCE.data_set(train, test, column_blocks, notes)


def _official_table(tree: Tree, table: str) -> Samples:
    features = _numbers(tree, f"{table}/X_{table.lower()}.txt")
    labels = _numbers(tree, f"{table}/y_{table.lower()}.txt")[:, 0]
    if features.shape[1] != NUM_FEATURES or len(features) != len(labels):
        raise ValueError(
            f"{table} has {features.shape} features and {len(labels)} labels, "
            f"expected {NUM_FEATURES} features in each row"
        )
    where = f"{tree.path}: {table}"
    return Samples(features, checked_labels(labels, 1, SOURCE.num_classes, where))


def _numbers(tree: Tree, name: str) -> Floats:
    with io.TextIOWrapper(tree.open(name), encoding="ascii") as text:
        return np.loadtxt(text, dtype=np.float32, ndmin=2)
