"""The names of classes: one name per class, however the files spell it."""

import polars as pl

from laser_vfl.data.values import MISSING, Kind


def class_names(labels: pl.Series, kind: Kind) -> tuple[str, ...]:
    """Every class of the label in order: numbers by value, text by the alphabet."""
    values = labels.cast(pl.String).unique().drop_nulls().to_list()
    names = {name for value in values if (name := class_name(value, kind)) is not None}
    return tuple(sorted(names, key=float) if kind == "number" else sorted(names))


def class_name(value: str, kind: Kind) -> str | None:
    """One name for a class, however a file spells it; None where the label is missing."""
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
