"""`predict`: a file of ids in, predictions out, in order and in constant memory."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO

from laser_vfl.cli.ids_file import batched, open_ids, read_ids
from laser_vfl.cli.option_parsers import parse_seconds
from laser_vfl.cli.own_daemon import OwnClient, own_client
from laser_vfl.cli.predict.predict_output import SUFFIXES, write_csv, write_file, write_json
from laser_vfl.cli.predict.predict_summary import Summary
from laser_vfl.core.errors import ConfigError, DataError, NotReady
from laser_vfl.remote.predictor import Predictor
from laser_vfl.transport.prediction_replies import Predictions

MAX_IN_FLIGHT = 4
SHOW_AFTER_S, SHOW_AFTER_SAMPLES = 2.0, 5_000
DEADLINE_S = 30.0
"""Without --deadline: for a file it is better to wait than to lose blocks."""


@dataclass(frozen=True)
class PredictOptions:
    """The options of the command, as they were given."""

    ids: Path
    client: str | None = None
    config: Path | None = None
    deadline: str | None = None
    out: Path | None = None
    require_blocks: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    name: str | None = None


def run_predict(options: PredictOptions, *, as_json: bool) -> None:
    """Score a file; print rows, or a summary when they go to a file."""
    out, deadline_s = options.out, DEADLINE_S
    if options.deadline is not None:
        deadline_s = parse_seconds(options.deadline, "--deadline")
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigError(f"--out {out} is neither .csv nor .parquet", hint="give it a suffix")
    on_screen = sys.stderr.isatty() and not (out is None and sys.stdout.isatty())
    started = time.monotonic()
    summary = Summary()
    daemon = _own_daemon(options)
    id_column = daemon.config.data.id if daemon else "id"
    with (
        _predictor(options, daemon) as predictor,
        open_ids(options.ids) as file,
        _progress(file, wanted=on_screen) as show,
    ):
        batches = batched(read_ids(file, options.ids, id_column))
        answers = predictor.predict_batches(batches, deadline_s, max_in_flight=MAX_IN_FLIGHT)
        answers = _counted(answers, summary, show)
        if out is not None:
            write_file(answers, out)
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
    if options.require_blocks and summary.num_lacking_up:
        clients = ", ".join(summary.lacking_up)
        raise NotReady(
            f"{summary.num_lacking_up} samples lack a block of a client that is up: {clients}",
            hint="allow more time with --deadline, or try again later",
        )


def _own_daemon(options: PredictOptions) -> OwnClient | None:
    if options.config is None:
        return None
    if any((options.client, options.ca, options.cert, options.key, options.token_file)):
        raise ConfigError(
            "--config says all that there is to say about the daemon", hint="give it alone"
        )
    return own_client(options.config)


def _predictor(options: PredictOptions, daemon: OwnClient | None) -> Predictor:
    if daemon is not None:
        return Predictor.by_access(daemon.address, daemon.access)
    if options.client is None:
        raise ConfigError(
            "whom to ask is not said", hint="give --config of the daemon, or --client HOST:PORT"
        )
    token = _read_token(options.token_file) if options.token_file else None
    return Predictor(
        options.client,
        ca=options.ca,
        cert=options.cert,
        key=options.key,
        token=token,
        name=options.name,
    )


def _read_token(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "cannot be read", where=str(path), hint="write the token into it, and nothing else"
        ) from None


def _counted(
    answers: Iterable[Predictions], summary: Summary, show: Callable[[int], None]
) -> Iterator[Predictions]:
    for predictions in answers:
        summary.add(predictions)
        show(summary.num_samples)
        yield predictions
    if not summary.num_samples:
        raise DataError("--ids has a header, but no ids", hint="add some")


@contextmanager
def _progress(file: IO[bytes], *, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Yield what shows the number of samples on a terminal, once scoring takes long."""
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
