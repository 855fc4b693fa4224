"""Text as people write it in tables: numbers, booleans and dates, and what stands for missing."""

from collections.abc import Mapping
from datetime import date
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.data.values import MISSING

Decimal = Literal[".", ",", "1,000.5"]
"""How numbers are written: with a point, with a comma, or with commas between thousands."""
DECIMALS: tuple[Decimal, ...] = (".", ",", "1,000.5")
HOW_WRITTEN: Final[Mapping[Decimal, str]] = {
    ".": "1234.5, without a sign between thousands",
    ",": "1234,5 or 1.234,5, with a decimal comma",
    "1,000.5": "1234.5 or 1,234.5, with a decimal point",
}

TRUTH = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "on": 1.0, "off": 0.0}
TRUTH |= {"t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0, "1": 1.0, "0": 0.0}
_PAIRS = ({"true", "false"}, {"yes", "no"}, {"on", "off"}, {"t", "f"}, {"y", "n"})

DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
"""What is tried, in this order. A time of the day, a fraction and a zone may follow."""

_COMMA = r"^[-+]?([1-9]\d{0,2}(\.\d{3})+|\d*)(,\d+)?([eE][-+]?\d+)?$"
_THOUSANDS = r"^[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
_IN_DOUBT = {
    ",": r"^[-+]?[1-9]\d{0,2}\.\d{3}$",
    "1,000.5": r"^[-+]?[1-9]\d{0,2},\d{3}$",
}
_SURELY_THOUSANDS = r"\d[.,]\d{3}[.,]\d"
_MOMENT = (
    r"^(?P<day>[0-9./-]{6,10})"
    r"(?:[T ](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?"
    r" ?(?:Z|UTC|[-+]\d{2}:?\d{2})?)?$"
)

Parsed = tuple[pl.Series, pl.Series]
"""Float64 values, null where missing; and where there is a value that cannot be read."""


def cleaned(column: pl.Series) -> pl.Series:
    """Return text without spaces around it, null where it stands for a missing value."""
    text = column.cast(pl.String).str.strip_chars()
    missing = text.str.to_lowercase().is_in(sorted(MISSING))
    return text.set(missing.fill_null(value=False), None)


def parse_numbers(text: pl.Series, decimal: Decimal) -> Parsed:
    """Read cleaned text as numbers.

    With a decimal comma, a point is for thousands alone: 0.125 and 12.5 cannot be read then. A
    group of thousands has three digits, and what is before the first one has one to three, of
    which the first is no zero.
    """
    values = text.cast(pl.Float64, strict=False)
    if decimal == ",":
        fits = text.str.contains(_COMMA).fill_null(value=False)
        plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
        values = plain.cast(pl.Float64, strict=False).set(~fits, None)
    elif decimal == "1,000.5":
        fits = text.str.contains(_THOUSANDS).fill_null(value=False)
        plain = text.str.replace_all(",", "", literal=True)
        values = plain.cast(pl.Float64, strict=False).zip_with(fits, values)
    values = values.fill_nan(None)
    return values, values.is_null() & text.is_not_null()


def decimal_of(text: pl.Series) -> Decimal | None:
    """Return how all of the cleaned text is written if it is numbers, else None.

    Numbers such as 1,234 alone could be either; they are thousands then.
    """
    some = text.drop_nulls().head(100)
    written: tuple[Decimal, ...] = (".", "1,000.5", ",")
    for decimal in written:
        if not parse_numbers(some, decimal)[1].any() and not parse_numbers(text, decimal)[1].any():
            return decimal
    return None


def are_thousands_in_doubt(text: pl.Series, decimal: Decimal) -> bool:
    """Tell whether cleaned text has values such as 1.234, and none that shows what they mean.

    Without a decimal point these are thousands for sure; so they are beside 1.234.567 or 1.234,5.
    """
    in_doubt = decimal in _IN_DOUBT and bool(text.str.contains(_IN_DOUBT[decimal]).any())
    return in_doubt and not text.str.contains(_SURELY_THOUSANDS).any()


def looks_like_codes(text: pl.Series) -> bool:
    """Tell whether a value begins with a zero that a number would lose, as 007 does."""
    return bool(text.str.contains(r"^[-+]?0\d").any())


def parse_booleans(text: pl.Series) -> Parsed:
    """Read cleaned text as 1 and 0."""
    words = text.str.to_lowercase()
    values = words.replace_strict(
        list(TRUTH), list(TRUTH.values()), default=None, return_dtype=pl.Float64
    )
    numbers = text.cast(pl.Float64, strict=False).fill_nan(None)
    values = values.zip_with(values.is_not_null(), numbers)
    return values, values.is_null() & text.is_not_null()


def are_booleans(text: pl.Series) -> bool:
    """Tell whether cleaned text has one pair of words alone, such as yes and no."""
    if text.null_count() == len(text):
        return False
    words = set(text.str.to_lowercase().unique().drop_nulls().head(3).to_list())
    return any(words <= pair for pair in _PAIRS)


def parse_moments(text: pl.Series, form: str) -> Parsed:
    """Read cleaned text as days since 1970, by a format of `DATE_FORMATS` or one of strptime.

    A zone is left out: what counts is what a clock on the wall has shown.
    """
    if form not in DATE_FORMATS:
        moments = text.str.strptime(pl.Datetime("us"), form, strict=False)
        values = moments.to_physical().cast(pl.Float64) / 86_400_000_000
        return values, values.is_null() & text.is_not_null()
    parts = text.str.extract_groups(_MOMENT).struct.unnest()
    days = parts["day"].str.to_date(form, strict=False).to_physical().cast(pl.Float64)
    hours, minutes, seconds = (
        parts[name].cast(pl.Float64).fill_null(0.0) for name in ("hour", "minute", "second")
    )
    fits = (hours < 24) & (minutes < 60) & (seconds < 60)
    values = days + (hours * 3600 + minutes * 60 + seconds) / 86_400
    values = values.set(~fits, None)
    return values, values.is_null() & text.is_not_null()


def moment_formats(text: pl.Series) -> tuple[str, ...]:
    """Return the formats by which all of the cleaned text can be read as dates; often none."""
    some = text.drop_nulls().head(100)
    return tuple(
        form
        for form in DATE_FORMATS
        if not parse_moments(some, form)[1].any() and not parse_moments(text, form)[1].any()
    )


def iso_days(day: str) -> float:
    """Return an ISO date as days since 1970."""
    return float((date.fromisoformat(day) - date(1970, 1, 1)).days)


def first_row(mask: pl.Series) -> int:
    """Return the number of the first marked row, from 1."""
    return int(mask.arg_max() or 0) + 1


def as_floats(values: pl.Series) -> npt.NDArray[np.float64]:
    """Return Float64 values with NaN where one is missing."""
    return values.fill_null(np.nan).to_numpy().astype(np.float64, copy=False)
