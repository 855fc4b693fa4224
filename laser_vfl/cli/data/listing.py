"""`data list`: which data sets there are, and which of them can be read here."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from laser_vfl.data.sets import SOURCES, data_root
from laser_vfl.data.sets.source import Source


def run_list(root: Path | None, *, as_json: bool) -> None:
    """Look for the files of every data set and print what was found; none of them is read."""
    directory = data_root(root)
    rows = [_row(source, directory) for source in SOURCES]
    if as_json:
        print(json.dumps({"data": directory and str(directory), "sets": rows}))
        return
    console = Console()
    table = Table()
    for column in ("set", "task", "metric", "classes", "here"):
        table.add_column(column)
    for row in rows:
        here = f"{row['kind']}: {Path(row['path']).name}" if row["path"] else row["kind"] or "no"
        table.add_row(row["name"], row["task"], row["metric"], str(row["num_classes"]), here)
    console.print(table)
    print(f"files in {directory}" if directory else "no directory with files: give --data DIR")
    for row in rows:
        if not row["kind"]:
            print(f"{row['name']}: {row['get_it']}")


def _row(source: Source, directory: Path | None) -> dict[str, Any]:
    found = source.find(directory) if directory and source.markers else None
    kind: str | None = found.kind if found else None
    if not source.markers and find_spec("sklearn"):
        kind = "installed"
    return {
        "name": source.name,
        "title": source.title,
        "task": source.task,
        "metric": source.metric,
        "num_classes": source.num_classes,
        "kind": kind,
        "path": str(found.path) if found else None,
        "get_it": source.get_it,
    }
