"""Writing the report of an experiment beside its results, and printing it."""

import json
from pathlib import Path

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.report.report import report_data, report_text
from laser_vfl.experiments.runner.experiment_record import read_record
from laser_vfl.experiments.runner.results_file import read_lines

NAME = "report.md"


def show_report(directory: Path, *, plot: bool, as_json: bool) -> None:
    """Write OUT/report.md and the pictures; print the report."""
    if plot:
        check_matplotlib()
    record, lines = read_record(directory), read_lines(directory)
    if record is None or not lines:
        raise ConfigError(
            "there are no results here",
            where=str(directory),
            hint="name the --out of a `laser-vfl experiment` that has run",
        )
    text = report_text(record, lines)
    pictures = []
    if plot:
        from laser_vfl.experiments.plots.pictures import write_pictures

        pictures = write_pictures(record, lines, directory)
        text += "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures)
    try:
        (directory / NAME).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(directory / NAME)
        ) from None
    if as_json:
        files = {"report": str(directory / NAME), "pictures": [str(path) for path in pictures]}
        print(json.dumps({**report_data(record, lines), **files}, ensure_ascii=False))
    else:
        print(text, end="")


def check_matplotlib() -> None:
    """Refuse to start when the pictures could not be drawn at the end."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            "pictures need matplotlib, which is not installed",
            hint="install it with pip install 'laser-vfl[plot]', or add --no-plot",
        ) from None
