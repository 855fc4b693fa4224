"""Labels of a training table as they are told: randomised once, under a secret of their owner."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import DataError
from laser_vfl.core.privacy.label_noise import (
    BOUNDS_APART,
    NUM_STEPS,
    DiscreteLaplace,
    LabelNoise,
    Levels,
    RandomisedResponse,
    randomised,
)
from laser_vfl.data.labels import LabelEncoding
from laser_vfl.data.tables import Table


@dataclass(frozen=True)
class PrivateLabels:
    """How an owner of labels randomises them before anything is learnt from them."""

    epsilon: float
    secret: bytes = field(repr=False)
    """For labels alone, and known to nobody else."""

    def noise(self, labels: LabelEncoding) -> LabelNoise:
        """Return what is done to labels of an encoding that does not depend on them."""
        if labels.task == "regression":
            return DiscreteLaplace(self.epsilon)
        return RandomisedResponse(self.epsilon, len(labels.classes))

    def told(
        self, table: Table, labels: LabelEncoding
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return noisy targets, and which rows have a label: that is not hidden.

        What is told of a person depends on the secret, the column, what labels can be, ε, the
        person and the label, and on nothing else.
        """
        check_classes(table, labels)
        targets, labelled = labels.apply(table)
        rows = np.flatnonzero(labelled)
        # By name and not by place, because the positive class may be placed last.
        in_order = np.argsort(np.array(labels.classes, dtype=np.str_))
        told = randomised(
            self.noise(labels),
            self.secret,
            _meaning(table, labels),
            [table.ids[row] for row in rows.tolist()],
            _levels(targets[rows], labels, in_order),
        )
        noisy = targets.copy()
        noisy[rows] = _targets(told, labels, in_order)
        return noisy, labelled


def check_classes(table: Table, labels: LabelEncoding) -> None:
    """Refuse a label that is none of the classes among which labels are randomised."""
    unknown = labels.unknown(table)
    if unknown.any():
        raise DataError(
            f"the label of row {int(unknown.argmax()) + 1} is none of the classes that are given",
            hint="add it to privacy.labels.classes",
            where=str(table.path),
        )


def _meaning(table: Table, labels: LabelEncoding) -> bytes:
    """Return what levels stand for: of which column they are, and what it can hold."""
    bounds = [labels.mean, labels.std] if labels.task == "regression" else []
    return json.dumps([table.spec.label, sorted(labels.classes), bounds]).encode()


def _levels(
    targets: npt.NDArray[Any], labels: LabelEncoding, in_order: npt.NDArray[np.intp]
) -> Levels:
    if labels.task == "regression":
        steps = np.rint((targets.astype(np.float64) / BOUNDS_APART + 0.5) * NUM_STEPS)
        return np.clip(steps, 0, NUM_STEPS).astype(np.int64)
    return np.argsort(in_order)[targets.astype(np.int64)]


def _targets(
    told: Levels, labels: LabelEncoding, in_order: npt.NDArray[np.intp]
) -> npt.NDArray[Any]:
    if labels.task == "regression":
        return (told / NUM_STEPS - 0.5) * BOUNDS_APART
    return in_order[told]
