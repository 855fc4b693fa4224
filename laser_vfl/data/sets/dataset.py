"""A data set of the paper: its samples, its labels, and how it is split and cut into blocks."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import DataError
from laser_vfl.core.randomness import RandomStream, random_permutation

Task = Literal["multiclass", "binary"]
Metric = Literal["accuracy", "f1"]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

ORGANISATIONS = ("bank", "shop", "telco", "clinic", "school", "airline", "library", "museum")
"""The clients among which the blocks of a data set are shared out."""

SPLIT_SEED = 0


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as they were read, before they are cut."""

    features: npt.NDArray[Any]  # (n, ...) float32; images are uint8, a quarter of the memory
    labels: Integers  # (n,), 0 to classes - 1
    static: tuple[Floats, ...] = ()  # groups (n, features) of what does not change over time

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: npt.NDArray[np.bool_]) -> "Samples":
        """Return some of the samples."""
        static = tuple(group[chosen] for group in self.static)
        return Samples(self.features[chosen], self.labels[chosen], static)

    def some(self, most: int | None) -> "Samples":
        """Return at most so many of the samples, in their order."""
        if most is None or most >= len(self):
            return self
        order = random_permutation(len(self), seed=0, stream=RandomStream.FEWER_SAMPLES, counter=0)
        return self.part(order.argsort() < most)


@dataclass(frozen=True, eq=False)
class Blocks:
    """One float32 array (n, ...) for each client; tables are as in the files, for it to scale."""

    train: list[Floats]
    test: list[Floats]


Cut = Callable[[Samples, Samples, int], Blocks]
"""From training samples, test samples and the number of clients to blocks."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples for training and for testing; `notes` belong beside every figure made with them."""

    name: str
    task: Task
    metric: Metric  # what the paper reports
    num_classes: int
    train: Samples
    test: Samples
    notes: tuple[str, ...]
    cut: Cut = field(repr=False)

    def reduced(self, max_train: int | None, max_test: int | None) -> "DataSet":
        """Return a data set of at most so many samples, drawn by chance, the same every time."""
        return replace(self, train=self.train.some(max_train), test=self.test.some(max_test))

    def blocks(self, num_clients: int) -> Blocks:
        """Cut every sample into one block for each client, as the paper does."""
        return self.cut(self.train, self.test, num_clients)


def checked_labels(
    labels: npt.NDArray[Any], first: int, num_classes: int, where: str
) -> npt.NDArray[np.int64]:
    """Return labels from 0; `first` is the lowest that the file may have."""
    counted = labels.astype(np.int64) - first
    if not len(counted) or counted.min() < 0 or counted.max() >= num_classes:
        raise DataError(
            f"expected labels from {first} to {first + num_classes - 1}",
            hint="get the file again",
            where=where,
        )
    return counted


def stratified_test(labels: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.bool_]:
    """Return which samples are for testing: `share` of each class, the same ones every time."""
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels).tolist():
        members = np.flatnonzero(labels == label)
        order = random_permutation(
            len(members), seed=SPLIT_SEED, stream=RandomStream.SPLIT, counter=label
        )
        is_test[members[order[: round(share * len(members))]]] = True
    return is_test
