"""The labels of each client: the same for all, unless an experiment says otherwise."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.experiment_settings import DataChoices

Array = npt.NDArray[Any]

COARSE: Final[dict[str, tuple[int, ...]]] = {
    # Walking (three kinds), resting (three kinds), changing posture (six kinds).
    "hapt": (0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2),
    # Even or odd.
    "digits": (0, 1, 0, 1, 0, 1, 0, 1, 0, 1),
}
"""A second set of labels, by class of the first."""


def labels_of(
    dataset: str, labels: Array, roster: Sequence[str], chosen: DataChoices
) -> dict[str, Array]:
    """Return the labels of each client that has some.

    With `tasks`, the first half of the roster has the data set's labels and the second half coarser
    ones: split, or only the first or the second half has any.
    """
    tasks = chosen.tasks
    by_client = dict.fromkeys(roster, labels)
    if tasks is not None:
        if dataset not in COARSE:
            raise ConfigError(
                f"{dataset} has no second set of labels", hint=f"use {' or '.join(COARSE)}"
            )
        half = len(roster) // 2
        if not half:
            raise ConfigError("two label sets take two clients", hint="use more --clients")
        coarse = np.array(COARSE[dataset])[labels]
        first = dict.fromkeys(roster[:half], labels)
        second = dict.fromkeys(roster[half:], coarse)
        by_task = {"split": first | second, "first": first, "second": second}
        by_client = by_task[tasks]
    return {name: by_client[name] for name in chosen.labelled(tuple(by_client))}
