"""Labels: which task a column is, its classes, and how they are encoded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.core.privacy.label_noise import BOUNDS_APART
from laser_vfl.data.columns.number_column import numbers_of
from laser_vfl.data.columns.text_values import (
    DECIMALS,
    Decimal,
    cleaned,
    decimal_of,
    looks_like_codes,
)
from laser_vfl.data.standardisation import Standardisation
from laser_vfl.data.tables import KnownLabels, Table, TableSpec
from laser_vfl.data.values import MISSING, Kind, as_numbers, kind_of

Task = Literal["multiclass", "binary", "regression"]
MAX_INTEGER_CLASSES = 50  # more different integers than this are an amount, not a class


@dataclass(frozen=True)
class LabelEncoding:
    """Turns raw labels into targets.

    A target of a class task is the place of the class in `classes`; of a binary task that is
    (negative, positive). A regression target is standardised by `mean` and `std`.
    """

    task: Task
    kind: Kind
    classes: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    class_weights: str = "none"
    decimal: Decimal = "."
    """How amounts are written where they are text."""

    @classmethod
    def fit(cls, table: Table, spec: TableSpec) -> "LabelEncoding":
        if spec.known is not None:
            return _known_encoding(table, spec, spec.known)
        labels, kind = _checked_labels(table)
        where = str(table.path)
        decimal: Decimal = "."
        if kind == "text" and table.untyped and (found := _decimal_of(labels, spec.task)):
            decimal, amounts = found, _amounts(labels, found, table.path)
            if _resolve_task(amounts, "number", spec.task, table) == "regression":
                labels, kind = amounts, "number"
        task = _resolve_task(labels, kind, spec.task, table)
        if task == "regression":
            if spec.positive is not None or spec.class_weights != "none":
                key = "class_weights" if spec.positive is None else "positive"
                raise _needs_classes(key, where)
            kind = "number" if kind == "text" else kind  # text that is no number is refused next
            numbers = as_numbers(labels, kind, path=table.path)
            standard = Standardisation.fit(numbers[:, None], axis=1)
            mean, std = float(standard.mean[0]), float(standard.deviation[0])
            if std == 0:
                raise _one_class(labels, where)
            return cls("regression", kind, mean=mean, std=std, decimal=decimal)
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
        """Return targets (int64 for multiclass, else float32) and which rows have a label.

        A row without a label has target 0. A class that training did not have is -1 in a
        multiclass task, never right; in a binary task it is an error.
        """
        labels = _labels_of(table)
        if self.task == "regression":
            amounts = _amounts(labels, self.decimal, table.path)
            numbers = as_numbers(amounts, self.kind, path=table.path)
            labelled = ~np.isnan(numbers)
            standard = Standardisation(1, np.array([self.mean]), np.array([self.std]))
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

    def unknown(self, table: Table) -> npt.NDArray[np.bool_]:
        """Tell which rows have a class that is not known."""
        labels = _labels_of(table)
        if self.task == "regression":
            return np.zeros(len(labels), dtype=bool)
        return self._places(labels) < 0

    def weights(
        self, targets: npt.NDArray[Any], labelled: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float32]:
        """Return each row's weight in the loss: 0 without a label, else 1 or by class balance."""
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
            **({} if self.decimal == "." else {"decimal": self.decimal}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "LabelEncoding":
        try:
            if stored["task"] not in get_args(Task) or stored["kind"] not in get_args(Kind):
                raise ValueError("unknown task or kind")
            if (decimal := stored.get("decimal", ".")) not in DECIMALS:
                raise ValueError("unknown decimal sign")
            return cls(
                stored["task"],
                stored["kind"],
                tuple(map(str, stored["classes"])),
                float(stored["mean"]),
                float(stored["std"]),
                str(stored["class_weights"]),
                decimal,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"the stored label encoding cannot be read ({type(error).__name__})",
                hint="train again, or restore the file that was written with the model",
            ) from error

    def _places(self, labels: pl.Series) -> npt.NDArray[np.float64]:
        """Return the place of each row's class, -1 for a class not known, NaN for no label."""
        place = {name: float(index) for index, name in enumerate(self.classes)}
        text = labels.cast(pl.String)
        values = [value for value in text.unique().to_list() if value is not None]
        names = [class_name(value, self.kind) for value in values]
        places = [np.nan if name is None else place.get(name, -1.0) for name in names]
        if not values:
            return np.full(len(labels), np.nan)
        found = text.replace_strict(values, places, default=np.nan, return_dtype=pl.Float64)
        return found.fill_null(np.nan).to_numpy()


def _known_encoding(table: Table, spec: TableSpec, known: KnownLabels) -> LabelEncoding:
    """Return an encoding that is the same whatever the labels in the table are."""
    labels, found = _checked_labels(table)
    if known.bounds is not None:
        low, high = known.bounds
        std = (high - low) / BOUNDS_APART
        return LabelEncoding("regression", "number", mean=low + (high - low) / 2, std=std)
    given = pl.Series(labels.name, known.classes or ("0", "1"), dtype=pl.String)
    if not known.classes:
        _check_flags(labels, found)
        kind = found
    elif table.untyped:
        kind = kind_of(given, untyped=True, path=table.path)
    else:
        kind = kind_of(labels, untyped=False, path=table.path)
    classes = class_names(given, kind)
    if len(classes) != len(given):
        raise ConfigError(
            "one of the classes is there twice, or stands for a missing label",
            hint="leave it out of classes",
        )
    if spec.positive is not None:
        classes = _positive_last(classes, kind, spec.positive, str(table.path))
    is_binary = len(classes) == 2 and spec.task != "multiclass"
    task: Task = "binary" if is_binary else "multiclass"
    return LabelEncoding(task, kind, classes, class_weights=spec.class_weights)


def _check_flags(labels: pl.Series, kind: Kind) -> None:
    """Refuse labels that are not 0 and 1, or false and true: they do not tell what they can be."""
    flags = {"number": {"0", "1"}, "boolean": {"false", "true"}}.get(kind, set())
    if not set(class_names(labels, kind)) <= flags:
        raise ConfigError(
            "a label is randomised among all that it can be, and that is not given",
            hint="add classes: with every class that the label can have, or bounds: with the "
            "lowest and the highest amount",
        )


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


def _decimal_of(labels: pl.Series, task: str) -> Decimal | None:
    """Return how amounts are written that are text; None where these are classes."""
    text = cleaned(labels)
    is_amount = task == "regression" or (task == "auto" and not looks_like_codes(text))
    found = decimal_of(text) if is_amount else None
    return None if found == "." else found


def _amounts(labels: pl.Series, decimal: Decimal, path: Path) -> pl.Series:
    """Return labels as numbers, if they are text with a decimal comma or thousands."""
    if decimal == "." or labels.dtype != pl.String:
        return labels
    return pl.Series(labels.name, numbers_of(labels, "number", decimal, path))


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


def class_names(labels: pl.Series, kind: Kind) -> tuple[str, ...]:
    """Return every class of the label in order: numbers by value, text by the alphabet."""
    values = labels.cast(pl.String).unique().drop_nulls().to_list()
    names = {name for value in values if (name := class_name(value, kind)) is not None}
    return tuple(sorted(names, key=float) if kind == "number" else sorted(names))


def class_name(value: str, kind: Kind) -> str | None:
    """Return one name for a class, however a file spells it; None where the label is missing."""
    if kind == "text":
        return value
    text = value.strip()
    if text.lower() in MISSING:
        return None
    if kind == "boolean":
        return {"1": "true", "0": "false"}.get(text, text.lower())
    try:
        return str(int(text))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)
