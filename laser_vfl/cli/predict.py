"""`predict`: a file of ids in, predictions out, in order and in memory that does not grow."""

import csv
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Timer
from typing import IO, Any

from laser_vfl.config.text import one_line
from laser_vfl.core.errors import ConfigError, DataError, MismatchError, quoted
from laser_vfl.remote.predictor import Predictor
from laser_vfl.wire.predictions import Predictions

NUM_IDS_PER_REQUEST = 1_000
MAX_IN_FLIGHT = 4
DEADLINE_S = 30.0
"""Without --deadline: whoever scores a file would rather wait than lose blocks."""

MAX_LINE_BYTES = 1 << 20
ROW_GROUP_SIZE = 50_000
NUM_REASONS = 3
SHOW_AFTER_S, SHOW_AFTER_SAMPLES = 2.0, 5_000


@dataclass(frozen=True)
class PredictOptions:
    """What a person may say about scoring a file."""

    client: str
    ids: Path
    deadline: str | None = None
    out: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass
class Summary:
    """What happened to a file as a whole; its size does not depend on the file's."""

    task: str = ""
    score_name: str = ""
    class_names: tuple[str, ...] = ()
    runs: list[str] = field(default_factory=list)
    num_samples: int = 0
    num_errors: int = 0
    reasons: list[str] = field(default_factory=list)
    by_blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)

    def add(self, predictions: Predictions) -> None:
        """Count some predictions; they must be of the same classes as those before."""
        names = tuple(_class_names(predictions))
        if self.runs and (predictions.task, names) != (self.task, self.class_names):
            raise MismatchError(
                "the model was replaced by one with other classes while scoring",
                hint="start again",
            )
        self.task, self.class_names = predictions.task, names
        self.score_name = predictions.score_name
        if predictions.run not in self.runs:
            self.runs.append(predictions.run)
        blocks, scores = predictions.block_names, predictions.expected_scores.tolist()
        for row, error in enumerate(predictions.errors):
            self.num_samples += 1
            if error is None:
                entry = self.by_blocks.setdefault(blocks[row], {"num_samples": 0})
                entry["num_samples"] += 1
                entry["expected_score"] = _known(scores[row])
                continue
            self.num_errors += 1
            if len(self.reasons) < NUM_REASONS:
                self.reasons.append(f"{quoted(predictions.ids[row])}: {one_line(error)}")
        for client, problem in predictions.peers.items():
            self.peers[client] = problem or self.peers.get(client, "")

    def as_dict(self, out: Path, seconds: float) -> dict[str, Any]:
        """Return it for --format json; `run` is the last of `runs`."""
        return {
            "run": self.runs[-1],
            "runs": self.runs,
            "task": self.task,
            "num_samples": self.num_samples,
            "num_predicted": self.num_samples - self.num_errors,
            "num_errors": self.num_errors,
            "score_name": self.score_name,
            "by_blocks": self.by_blocks,
            "peers": self.peers,
            "out": str(out),
            "seconds": round(seconds, 3),
        }

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield it for a person."""
        num_predicted = self.num_samples - self.num_errors
        yield f"{num_predicted} of {self.num_samples} samples predicted in {seconds:.1f} s"
        if len(self.runs) == 1:
            yield f"run {self.runs[0]}"
        else:
            yield f"the model was replaced while scoring: runs {', '.join(self.runs)}"
        for blocks, entry in sorted(self.by_blocks.items(), key=lambda item: item[0].count(",")):
            score = entry["expected_score"]
            said = "unknown" if score is None else f"{score:.3f}"
            yield f"  with {blocks}: {entry['num_samples']}, expected {self.score_name} {said}"
        for client, problem in self.peers.items():
            if problem:
                yield f"  {client}: {one_line(problem)}"
        if self.num_errors:
            yield f"{self.num_errors} without a prediction, such as"
            yield from (f"  {reason}" for reason in self.reasons)


def run_predict(options: PredictOptions, *, as_json: bool) -> None:
    """Score a file; print rows, or a summary when they go to a file."""
    out = options.out
    deadline_s = DEADLINE_S if options.deadline is None else parse_seconds(options.deadline)
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out} is neither .csv nor .parquet", hint="give it a suffix")
    on_screen = sys.stderr.isatty() and not (out is None and sys.stdout.isatty())
    started = time.monotonic()
    summary = Summary()
    with (
        Predictor(options.client, ca=options.ca, cert=options.cert, key=options.key) as predictor,
        open_ids(options.ids) as file,
        _progress(file, wanted=on_screen) as show,
    ):
        batches = batched(read_ids(file, options.ids))
        answers = predictor.predict_batches(batches, deadline_s, max_in_flight=MAX_IN_FLIGHT)
        answers = _counted(answers, summary, show)
        if out is not None:
            with _replaced(out) as path:
                _write_file(answers, path, out.suffix)
        elif as_json:
            write_json(answers, sys.stdout)
        else:
            write_csv(answers, sys.stdout)
    seconds = time.monotonic() - started
    all_failed = summary.num_errors == summary.num_samples
    if out is not None and as_json:
        print(json.dumps(summary.as_dict(out, seconds)))
    elif out is not None or not all_failed:
        for line in summary.lines(seconds):
            print(line, file=sys.stdout if out is not None else sys.stderr)
    if all_failed:
        raise DataError(f"no sample has a prediction; the first is {summary.reasons[0]}")


def _write_file(answers: Iterable[Predictions], path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        write_parquet(answers, path)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_csv(answers, stream)


def parse_seconds(text: str, option: str = "--deadline") -> float:
    """Return the seconds in "200ms", "1.5s" or "2"."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|)", text.strip(), re.ASCII)
    seconds = float(found[1]) / (1e3 if found[2] == "ms" else 1) if found else 0.0
    if not 0 < seconds <= 86_400:
        raise ConfigError(
            f"{option}: {quoted(text)} is no time to wait", hint="write it as 200ms or 1.5s"
        )
    return seconds


@contextmanager
def open_ids(path: Path) -> Iterator[IO[bytes]]:
    """Open the file of ids."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", where=str(path), hint="check --ids"
        ) from None
    with file:
        yield file


def read_ids(file: IO[bytes], path: Path) -> Iterator[str]:
    """Yield the ids of a CSV file: its column "id", or its only one. Blank lines are no rows."""
    rows = csv.reader(_text_lines(file, path), strict=True)
    place, header = 0, None
    try:
        for row in rows:
            if header is None:
                header, place = row, _id_place(row, path)
            elif len(row) == len(header):
                yield row[place]
            elif row:
                raise DataError(
                    f"this row has {len(row)} fields, the header has {len(header)}",
                    hint="quote fields that contain a comma",
                    where=f"{path}:{rows.line_num}",
                )
    except csv.Error as error:
        raise DataError(
            f"this line is not CSV: {error}",
            hint="check its quotes",
            where=f"{path}:{rows.line_num}",
        ) from None
    if header is None:
        raise DataError("the file is empty", hint='write a header "id" and ids', where=str(path))


def _text_lines(file: IO[bytes], path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        where = f"{path}:{number}"
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) == MAX_LINE_BYTES:
            raise DataError("this line is too long", hint="is it a CSV file?", where=where)
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise DataError(
                "this line is not UTF-8", hint="save it as UTF-8", where=where
            ) from None


def _id_place(header: list[str], path: Path) -> int:
    names = [name.strip() for name in header]
    where = f"{path}:1"
    hint = 'write a header "id" before the ids'
    if not any(names) or (len(names) == 1 and names[0].isdecimal()):
        raise DataError("there is no header", hint=hint, where=where)
    if len(names) == 1 and re.search(r"[;\t]", names[0]):
        raise DataError(
            f"{quoted(names[0])} looks like many columns", hint="use commas", where=where
        )
    if len(names) > 1 and names.count("id") != 1:
        found = "no column is" if "id" not in names else f"{names.count('id')} columns are"
        raise DataError(f'{found} called "id"', hint="one has to be", where=where)
    return names.index("id") if len(names) > 1 else 0


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in requests."""
    ids = iter(ids)
    while batch := list(islice(ids, NUM_IDS_PER_REQUEST)):
        yield batch


def _counted(
    answers: Iterable[Predictions], summary: Summary, show: Callable[[int], None]
) -> Iterator[Predictions]:
    for predictions in answers:
        summary.add(predictions)
        show(summary.num_samples)
        yield predictions
    if not summary.num_samples:
        raise DataError("--ids has a header, but no ids", hint="add some")


def columns_of(predictions: Predictions) -> dict[str, list[Any]]:
    """Return the columns of the output, None where a value is not known."""
    labels = predictions.labels.tolist()
    columns = {"id": list(predictions.ids), "prediction": [_known(label) for label in labels]}
    if predictions.probabilities is not None:
        names = _class_names(predictions)
        for name, column in zip(names, predictions.probabilities.T, strict=True):
            # Through text, so that 0.1 in float32 stays 0.1.
            columns[f"prob_{name}"] = [_known(float(text)) for text in column.astype(str)]
    columns["blocks"] = [names or None for names in predictions.block_names]
    columns["expected_score"] = [_known(score) for score in predictions.expected_scores.tolist()]
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


def write_parquet(answers: Iterable[Predictions], path: Path) -> None:
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
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        try:
            temporary.touch()
            yield temporary
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(out), hint="give another --out"
        ) from None


@contextmanager
def _progress(file: IO[bytes], *, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show how far it is, on a terminal and only when it takes long."""
    if not wanted:
        yield lambda num_samples: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.fields[num_samples]} samples")
    bar = Progress(
        BarColumn(), said, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    total = os.fstat(file.fileno()).st_size if file.seekable() else None
    task = bar.add_task("", total=total, num_samples=0)
    late = Timer(SHOW_AFTER_S, bar.start)
    late.start()

    def show(num_samples: int) -> None:
        if num_samples > SHOW_AFTER_SAMPLES:
            bar.start()
        done = 0 if total is None else file.tell()
        bar.update(task, completed=done, num_samples=num_samples)

    try:
        yield show
    finally:
        late.cancel()
        late.join()
        bar.stop()


def _class_names(predictions: Predictions) -> list[str]:
    return [_text(name) for name in predictions.classes.tolist()]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


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
