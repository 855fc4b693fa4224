"""Labels as files number them, checked and counted from 0."""

from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import DataError


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
