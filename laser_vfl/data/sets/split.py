"""A split into training and test samples for data that comes without one."""

import numpy as np
import numpy.typing as npt

from laser_vfl.core.randomness import Purpose, random_permutation

SEED = 0


def stratified_test(labels: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.bool_]:
    """Return which samples are for testing: `share` of each class, the same ones every time."""
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels).tolist():
        members = np.flatnonzero(labels == label)
        order = random_permutation(len(members), seed=SEED, purpose=Purpose.SPLIT, moment=label)
        is_test[members[order[: round(share * len(members))]]] = True
    return is_test
