"""Refuses dates and times that no calendar here has, before polars is asked to convert them."""

from datetime import date
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.columns.text_values import as_floats

EPOCH: Final = date(1970, 1, 1).toordinal()
FIRST: Final = date(2, 1, 1).toordinal() - EPOCH
LAST: Final = date(9998, 12, 31).toordinal() - EPOCH
"""A year less at both ends, which a time zone cannot cross."""

_TICKS: Final = {"ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


def raw_days(column: pl.Series) -> npt.NDArray[np.float64]:
    """Return a column of dates, or of dates with times, as days since 1970 without any zone."""
    dtype = column.dtype
    ticks = _TICKS[str(dtype.time_unit)] if isinstance(dtype, pl.Datetime) else 1.0
    return as_floats(column.to_physical().cast(pl.Float64) / ticks)


def check_calendar(column: pl.Series, path: Path) -> None:
    """Refuse years that come from a wrong unit; polars aborts on some of them."""
    if column.dtype != pl.Date and not isinstance(column.dtype, pl.Datetime):
        return
    days = raw_days(column)
    far = (days < FIRST) | (days > LAST)
    if far.any():
        raise DataError(
            f'column "{column.name}" has a year before 2 or after 9998 in row '
            f"{int(far.argmax()) + 1}",
            hint="correct the value or leave it empty; is the unit of the times right?",
            where=str(path),
        )
