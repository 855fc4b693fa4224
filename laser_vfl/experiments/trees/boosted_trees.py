"""Gradient boosting by histograms, as scikit-learn has it, on the columns of a table."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import ConfigError

MAX_CATEGORIES = 254
"""More values of a column than trees take: rarer ones count as one."""

Array = npt.NDArray[Any]


class BoostedTrees:
    """Trees with the defaults of scikit-learn and early stopping; null is a value of its own."""

    def __init__(self, task: str, seed: int) -> None:
        try:
            from sklearn.ensemble import (
                HistGradientBoostingClassifier,
                HistGradientBoostingRegressor,
            )
        except ImportError:
            raise ConfigError(
                "boosted trees come with scikit-learn, which is not installed",
                hint="install it with: pip install 'laser-vfl[demo]'",
            ) from None
        self._is_binary = task == "binary"
        self._kind = (
            HistGradientBoostingClassifier if self._is_binary else HistGradientBoostingRegressor
        )
        self._seed = seed
        self._values: dict[str, pl.DataFrame] = {}

    def fit(self, columns: pl.DataFrame, targets: Array) -> "BoostedTrees":
        """Learn from columns of numbers and text."""
        text = [name for name in columns.columns if columns[name].dtype == pl.String]
        for name in text:
            counts = columns[name].drop_nulls().value_counts(sort=True, name="rows")
            frequent = counts.head(MAX_CATEGORIES - 1)[name]
            self._values[name] = pl.DataFrame({name: frequent}).with_row_index("code")
        is_text = [name in self._values for name in columns.columns]
        model = self._kind(
            categorical_features=is_text, early_stopping=True, random_state=self._seed
        )
        self._model = model.fit(self._numbers(columns), targets)
        return self

    def predict(self, columns: pl.DataFrame) -> Array:
        """Return probabilities, or values."""
        numbers = self._numbers(columns)
        if self._is_binary:
            return np.asarray(self._model.predict_proba(numbers)[:, 1])
        return np.asarray(self._model.predict(numbers))

    def _numbers(self, columns: pl.DataFrame) -> Array:
        out = np.empty((len(columns), columns.width))
        for place, name in enumerate(columns.columns):
            column = columns[name]
            if name in self._values:
                codes = self._values[name]
                others = pl.when(column.is_not_null()).then(float(MAX_CATEGORIES - 1))
                column = columns.select(
                    pl.col(name)
                    .replace_strict(
                        codes[name], codes["code"], default=None, return_dtype=pl.Float64
                    )
                    .fill_null(others)
                ).to_series()
            out[:, place] = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        return out
