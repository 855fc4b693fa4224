"""`report`: what each subset of blocks can do, what each block is worth, and what is lost."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.atomic_files import replace_file
from laser_vfl.cli.report.report_content import report_of
from laser_vfl.cli.report.report_text import markdown, print_report
from laser_vfl.cli.report.report_views import view_of_config, views_of_report
from laser_vfl.core.errors import ConfigError

JSON, MARKDOWN, PICTURE = "report.json", "report.md", "report.png"


@dataclass(frozen=True)
class ReportOptions:
    """The options of the command, as they were given."""

    configs: Sequence[Path]
    reports: Sequence[Path] = ()
    score: str | None = None
    out: Path | None = None


def run_report(options: ReportOptions, *, as_json: bool) -> None:
    """Print a report on one or several clients, and write it if that is wanted."""
    write = _writing(options.out) if options.out else None
    views = [view_of_config(path) for path in options.configs]
    views += [view for path in options.reports for view in views_of_report(path)]
    if not views:
        raise ConfigError("there is nobody to report on", hint="give --config of a client")
    report = report_of(views, options.score)
    if write:
        write(report)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print_report(report, Console())
    if options.out:
        print(f"written to {options.out}: {JSON}, {MARKDOWN} and {PICTURE}")


def _writing(out: Path) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes the files; what would make it fail is checked first."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            "--out needs matplotlib", hint="install it with pip install 'laser-vfl[plot]'"
        ) from None
    from laser_vfl.cli.report.report_picture import picture

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise _unwritable(out, PermissionError(None, "Permission denied"))

    def write(report: dict[str, Any]) -> None:
        text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
        contents = {
            JSON: text.encode(),
            MARKDOWN: markdown(report, PICTURE).encode(),
            PICTURE: picture(report),
        }
        for name, content in contents.items():
            _put(out / name, content)

    return write


def _put(path: Path, content: bytes) -> None:
    """Write a file; it appears when it is complete, in place of an older one."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot be written ({error.strerror})", where=str(path), hint="give another --out"
    )
