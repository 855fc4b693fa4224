"""The encoding of labels: which task they make, and the targets and weights of the rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data.classes import class_name, class_names
from laser_vfl.data.standard import Standard
from laser_vfl.data.tables import Table, TableSpec
from laser_vfl.data.values import Kind, as_numbers, kind_of

Task = Literal["multiclass", "binary", "regression"]
MAX_INTEGER_CLASSES = 50  # more different integers than this are an amount, not a class


@dataclass(frozen=True)
class LabelEncoding:
    """From raw labels to targets.

    A target of a class task is the place of the class in `classes`; of a binary task that is
    (negative, positive). A regression target is standardised by `mean` and `std`.
    """

    task: Task
    kind: Kind
    classes: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    class_weights: str = "none"

    @classmethod
    def fit(cls, table: Table, spec: TableSpec) -> "LabelEncoding":
        labels, kind = _checked_labels(table)
        where = str(table.path)
        task = _resolve_task(labels, kind, spec.task, table)
        if task == "regression":
            if spec.positive is not None or spec.class_weights != "none":
                key = "class_weights" if spec.positive is None else "positive"
                raise _needs_classes(key, where)
            kind = "number" if kind == "text" else kind  # text that is no number is refused next
            numbers = as_numbers(labels, kind, path=table.path)
            standard = Standard.fit(numbers[:, None], axis=1)
            mean, std = float(standard.mean[0]), float(standard.deviation[0])
            if std == 0:
                raise _one_class(labels, where)
            return cls("regression", kind, mean=mean, std=std)
        classes = class_names(labels, kind)
        if len(classes) == 1:
            raise _one_class(labels, where)
        if task == "binary" and len(classes) != 2:
            raise DataError(
                f'label "{labels.name}" has {len(classes)} classes, a binary task needs two',
                hint="use `task: multiclass` or another label",
                where=where,
            )
        if spec.positive is not None:
            classes = _positive_last(classes, kind, spec.positive, where)
        return cls(task, kind, classes, class_weights=spec.class_weights)

    @property
    def num_outputs(self) -> int:
        return len(self.classes) if self.task == "multiclass" else 1

    def apply(self, table: Table) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Targets (int64 for multiclass, else float32) and which rows have a label.

        A row without a label has target 0. A class that training did not have is -1 in a
        multiclass task, never right; in a binary task it is an error.
        """
        labels = _labels_of(table)
        if self.task == "regression":
            numbers = as_numbers(labels, self.kind, path=table.path)
            labelled = ~np.isnan(numbers)
            standard = Standard(1, np.array([self.mean]), np.array([self.std]))
            return standard.apply(numbers[:, None])[:, 0], labelled
        places = self._places(labels)
        labelled = ~np.isnan(places)
        targets = np.nan_to_num(places, nan=0.0)
        if self.task == "multiclass":
            return targets.astype(np.int64), labelled
        if (targets < 0).any():
            raise DataError(
                f'label "{labels.name}" has a class in row {int((targets < 0).argmax()) + 1} '
                "that training did not have",
                hint="a binary task has the two classes of the training table",
                where=str(table.path),
            )
        return targets.astype(np.float32), labelled

    def weights(
        self, targets: npt.NDArray[Any], labelled: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float32]:
        """The weight of each row in the loss: 0 without a label, else 1 or by class balance."""
        if self.class_weights != "balanced":
            return labelled.astype(np.float32)
        places = targets.astype(np.int64)
        counted = labelled & (places >= 0)
        counts = np.bincount(places[counted], minlength=len(self.classes))
        by_class = counts.sum() / (len(self.classes) * np.maximum(counts, 1))
        return np.where(counted, by_class[places], 0.0).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "kind": self.kind,
            "classes": list(self.classes),
            "mean": self.mean,
            "std": self.std,
            "class_weights": self.class_weights,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "LabelEncoding":
        try:
            if stored["task"] not in get_args(Task) or stored["kind"] not in get_args(Kind):
                raise ValueError("unknown task or kind")
            return cls(
                stored["task"],
                stored["kind"],
                tuple(map(str, stored["classes"])),
                float(stored["mean"]),
                float(stored["std"]),
                str(stored["class_weights"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"the stored label encoding cannot be read ({type(error).__name__})",
                hint="train again, or restore the file that was written with the model",
            ) from error

    def _places(self, labels: pl.Series) -> npt.NDArray[np.float64]:
        """The place of each row's class, -1 for a class not known, NaN for no label."""
        place = {name: float(index) for index, name in enumerate(self.classes)}
        text = labels.cast(pl.String)
        values = [value for value in text.unique().to_list() if value is not None]
        names = [class_name(value, self.kind) for value in values]
        places = [np.nan if name is None else place.get(name, -1.0) for name in names]
        if not values:
            return np.full(len(labels), np.nan)
        found = text.replace_strict(values, places, default=np.nan, return_dtype=pl.Float64)
        return found.fill_null(np.nan).to_numpy()


def _labels_of(table: Table) -> pl.Series:
    if table.labels is None:
        raise DataError(
            "the table was read without a label", hint="set `data.label`", where=str(table.path)
        )
    return table.labels


def _checked_labels(table: Table) -> tuple[pl.Series, Kind]:
    labels = _labels_of(table)
    kind = kind_of(labels, untyped=table.untyped, path=table.path)
    hint = "choose another label, or leave `label` out for a client without a head"
    if kind == "time":
        raise DataError(
            f'label "{labels.name}" is a date or time', hint=hint, where=str(table.path)
        )
    empty = kind == "empty"
    if kind in ("number", "boolean"):
        empty = bool(np.isnan(as_numbers(labels, kind, path=table.path)).all())
    if empty:
        raise DataError(
            f'label "{labels.name}" has no value in any row', hint=hint, where=str(table.path)
        )
    return labels, kind


def _resolve_task(labels: pl.Series, kind: Kind, wanted: str, table: Table) -> Task:
    if wanted in get_args(Task):
        task: Task = wanted  # type: ignore[assignment]
        return task
    if wanted != "auto":
        raise ConfigError(f'unknown task "{wanted}"', hint=f"use auto, {', '.join(get_args(Task))}")
    if kind == "number":
        numbers = as_numbers(labels, kind, path=table.path)
        numbers = np.unique(numbers[~np.isnan(numbers)])
        if (numbers != np.floor(numbers)).any() or len(numbers) > MAX_INTEGER_CLASSES:
            return "regression"
    return "binary" if len(class_names(labels, kind)) <= 2 else "multiclass"


def _positive_last(
    classes: tuple[str, ...], kind: Kind, positive: str, where: str
) -> tuple[str, ...]:
    name = class_name(positive, kind)
    if len(classes) != 2:
        raise _needs_classes("positive", where)
    if name not in classes:
        raise DataError(
            f'the positive class "{positive}" is not in the label',
            hint="set `positive` to one of the two values that the label has",
            where=where,
        )
    return classes if name == classes[1] else classes[::-1]


def _needs_classes(key: str, where: str) -> ConfigError:
    what = "a binary task" if key == "positive" else "a task with classes"
    return ConfigError(
        f"`{key}` is for {what}", hint="leave it out or set `task` to fit", where=where
    )


def _one_class(labels: pl.Series, where: str) -> DataError:
    return DataError(
        f'label "{labels.name}" has one class, there is nothing to learn',
        hint="choose another label, or leave `label` out for a client without a head",
        where=where,
    )
