"""The rows that `predict` writes while answers come: CSV, JSON lines or Parquet."""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from laser_vfl.atomic_files import replacing
from laser_vfl.core.errors import ConfigError
from laser_vfl.transport.prediction_replies import Predictions

SUFFIXES = (".csv", ".parquet")
ROW_GROUP_SIZE = 50_000


def columns_of(predictions: Predictions) -> dict[str, list[Any]]:
    """Return the columns of the output, None where a value is not known."""
    labels = predictions.labels.tolist()
    columns = {"id": list(predictions.ids), "prediction": [known(label) for label in labels]}
    if predictions.probabilities is not None:
        names = class_names(predictions)
        for name, column in zip(names, predictions.probabilities.T, strict=True):
            # Through text, so that 0.1 in float32 stays 0.1.
            columns[f"prob_{name}"] = [known(float(text)) for text in column.astype(str)]
    columns["blocks"] = [names or None for names in predictions.block_names]
    columns["expected_score"] = [known(score) for score in predictions.expected_scores.tolist()]
    columns["error"] = list(predictions.errors)
    return columns


def write_csv(answers: Iterable[Predictions], stream: IO[str]) -> None:
    """Write rows as CSV, with a header."""
    writer = csv.writer(stream, lineterminator="\n")
    for number, columns in enumerate(map(columns_of, answers)):
        if not number:
            writer.writerow(columns)
        columns["error"] = [_no_formula(error) for error in columns["error"]]
        writer.writerows(zip(*(map(_text, values) for values in columns.values()), strict=True))
    stream.flush()


def write_json(answers: Iterable[Predictions], stream: IO[str]) -> None:
    """Write one JSON object for each row."""
    for columns in map(columns_of, answers):
        for row in zip(*columns.values(), strict=True):
            stream.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False))
            stream.write("\n")
    stream.flush()


def write_file(answers: Iterable[Predictions], out: Path) -> None:
    """Write rows as the suffix of `out` says; the file appears when it is complete."""
    with _replaced(out) as path:
        if out.suffix == ".parquet":
            _write_parquet(answers, path)
        else:
            with path.open("w", encoding="utf-8", newline="") as stream:
                write_csv(answers, stream)


def class_names(predictions: Predictions) -> list[str]:
    """Return the classes as label files have them."""
    return [_text(name) for name in predictions.classes.tolist()]


def known(value: Any) -> Any:
    """Return a value, or None in place of NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _write_parquet(answers: Iterable[Predictions], path: Path) -> None:
    """Write rows as Parquet while they come; polars holds some row groups, never all rows."""
    import polars as pl
    from polars.io.plugins import register_io_source

    answers = iter(answers)
    first = next(answers)
    names = list(columns_of(first))
    labels = {"i": pl.Int64, "f": pl.Float64, "b": pl.Boolean, "U": pl.String}
    kind = "f" if first.probabilities is None else first.classes.dtype.kind
    schema: dict[str, type[pl.DataType]] = dict.fromkeys(names, pl.String)
    schema |= {name: pl.Float32 for name in names if name.startswith("prob_")}
    schema |= {"prediction": labels[kind], "expected_score": pl.Float64}

    def frames(*_: object) -> Iterator[pl.DataFrame]:
        for predictions in chain([first], answers):
            yield pl.DataFrame(columns_of(predictions), schema=schema)

    try:
        register_io_source(frames, schema=schema).sink_parquet(
            path, row_group_size=ROW_GROUP_SIZE, engine="streaming"
        )
    except pl.exceptions.PolarsError as error:
        raise OSError(None, next(iter(str(error).splitlines()), "polars failed")) from None


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """Give a file next to `out` to write to, and put it in place when it is complete."""
    try:
        with replacing(out) as temporary:
            yield temporary
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(out), hint="give another --out"
        ) from None


def _text(value: Any) -> str:
    """A value as label files have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return "" if value is None else str(value)


def _no_formula(text: str | None) -> str | None:
    """Somebody else's text must not start a formula when a spreadsheet opens the file."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text
