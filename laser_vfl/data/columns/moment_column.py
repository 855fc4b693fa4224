"""A column of dates or times: age, year, and the places in the year, the week and the day."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.columns.calendar_range import check_calendar, raw_days
from laser_vfl.data.columns.scaling import STANDARD_SCALING, Linear, fit_scaling
from laser_vfl.data.columns.text_values import as_floats, cleaned, first_row, parse_moments
from laser_vfl.data.values import kind_of

Floats = npt.NDArray[np.float64]

DAYS_A_YEAR: Final = 365.2425
LINEAR: Final = ("age", "year")
PERIODS: Final = {"month": 12.0, "weekday": 7.0, "hour": 24.0}
"""What comes round, and after how many; each becomes a sine and a cosine."""


@dataclass(frozen=True)
class MomentColumn:
    """Those parts of a date or time that differed in training.

    The age is in years before `reference`, the last day of training unless it is given. Month,
    weekday and hour become a sine and a cosine, so that December is next to January.
    """

    name: str
    format: str
    reference: float
    """In days since 1970."""
    linear: tuple[tuple[str, Linear], ...]
    cyclic: tuple[str, ...]
    has_indicator: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """What is kept of each date or time."""
        return (*(name for name, _ in self.linear), *self.cyclic)

    @property
    def order(self) -> tuple[int, ...]:
        """Some numbers."""
        return (0,) * (len(self.linear) + 2 * len(self.cyclic) + self.has_indicator)

    @classmethod
    def fit(
        cls, column: pl.Series, form: str, reference: float | None, path: Path
    ) -> "MomentColumn":
        """Learn which parts differ, and their scale."""
        days = days_of(column, form, path)
        known = days[~np.isnan(days)]
        last = float(np.floor(known.max())) if reference is None else reference
        is_clock = column.dtype == pl.Time
        parts = {
            name: part
            for name, part in _parts(known, last).items()
            if len(part) and part.min() < part.max() and (name == "hour" or not is_clock)
        }
        if not parts:  # one moment alone
            parts = {"age": _parts(known, last)["age"]}
        linear = [(name, parts[name]) for name in LINEAR if name in parts]
        scaled = tuple((name, fit_scaling(part, STANDARD_SCALING)) for name, part in linear)
        return cls(
            column.name,
            form,
            last,
            tuple((name, scale) for name, scale in scaled if isinstance(scale, Linear)),
            tuple(name for name in PERIODS if name in parts),
            len(known) < len(days),
        )

    def write(self, column: pl.Series, out: npt.NDArray[np.float32], path: Path) -> None:
        """Fill `out`, (rows, parts), with the encoded column."""
        days = days_of(column, self.format, path)
        is_missing = np.isnan(days)
        parts = _parts(np.where(is_missing, 0.0, days), self.reference)
        place = 0
        for name, scaling in self.linear:
            out[:, place] = scaling.apply(np.where(is_missing, np.nan, parts[name]))
            place += 1
        for name in self.cyclic:
            angle = 2 * np.pi * parts[name] / PERIODS[name]
            out[:, place] = np.where(is_missing, 0.0, np.sin(angle))
            out[:, place + 1] = np.where(is_missing, 0.0, np.cos(angle))
            place += 2
        if self.has_indicator:
            out[:, place] = is_missing

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {
            "name": self.name,
            "kind": "datetime",
            "format": self.format,
            "reference": self.reference,
            "linear": [{"part": name, **scaling.to_json()} for name, scaling in self.linear],
            "cyclic": list(self.cyclic),
            "missing_indicator": self.has_indicator,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "MomentColumn":
        """Return the column that a manifest has kept."""
        linear = tuple(
            (str(p["part"]), Linear(STANDARD_SCALING, float(p["mean"]), float(p["deviation"])))
            for p in stored["linear"]
        )
        cyclic = tuple(map(str, stored["cyclic"]))
        if not ({name for name, _ in linear} <= set(LINEAR) and set(cyclic) <= set(PERIODS)):
            raise ValueError("unknown part of a date")
        return cls(
            str(stored["name"]),
            str(stored["format"]),
            float(stored["reference"]),
            linear,
            cyclic,
            bool(stored["missing_indicator"]),
        )


def days_of(column: pl.Series, form: str, path: Path) -> Floats:
    """Return the dates or times of a column of any file as days since 1970; refuse other things."""
    found = kind_of(column, untyped=False, path=path)
    dtype = column.dtype
    if found == "empty":
        return np.full(len(column), np.nan)
    if found == "text":
        values, bad = parse_moments(cleaned(column), form or "%Y-%m-%d")
        if bad.any():
            raise DataError(
                f'row {first_row(bad)} of column "{column.name}" cannot be read as a date or time',
                hint=f"write it as {form or '%Y-%m-%d'}, as in training, or leave it empty",
                where=str(path),
            )
        return as_floats(values)
    if found != "time" or dtype == pl.Duration:
        raise DataError(
            f'column "{column.name}" held times in training and has the type {dtype} here',
            hint="give the column the same type in all tables",
            where=str(path),
        )
    if dtype == pl.Time:
        return as_floats(column.to_physical().cast(pl.Float64) / 86_400e9)
    check_calendar(column, path)
    if isinstance(dtype, pl.Datetime):
        column = column.dt.replace_time_zone(None)
    return raw_days(column)


def _parts(days: Floats, reference: float) -> dict[str, Floats]:
    whole = np.floor(days)
    dates = whole.astype(np.int64).astype("datetime64[D]")
    months = dates.astype("datetime64[M]").astype(np.int64)
    return {
        "age": (reference - days) / DAYS_A_YEAR,
        "year": np.floor(months / 12) + 1970,
        "month": (months % 12).astype(np.float64),
        "weekday": (whole + 3) % 7,  # the first day of 1970 was a Thursday
        "hour": (days - whole) * 24,
    }
