"""What the demo shows: how far the clients are, then what each subset of blocks can do."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from laser_vfl.core.evaluation.metrics import accuracy_over_clients
from laser_vfl.local_federation import step_lines

SAY_EVERY_S = 2.0


class DemoProgress:
    """Shows how far the clients are: a bar on a terminal, plain lines otherwise."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self._files = [directory / f"{name}-state" / "metrics.jsonl" for name in names]
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn(
                "epoch {task.fields[epoch]}, step {task.completed}, loss {task.fields[loss]}"
            ),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=None, epoch="-", loss="-")
        self._shown = 0
        self._said_at = 0.0

    def __enter__(self) -> "DemoProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self) -> None:
        lines = [line for file in self._files if (line := _last_line(file)) is not None]
        if len(lines) < len(self._files):
            return
        step = min(line["step"] for line in lines)
        losses = [line["loss"] for line in lines if line["loss"] is not None]
        loss = f"{sum(losses) / len(losses):.4f}" if losses else "-"
        self._bar.update(self._task, completed=step, epoch=lines[0]["epoch"], loss=loss)
        now = time.monotonic()
        if self._bar.disable and step > self._shown and now - self._said_at >= SAY_EVERY_S:
            say(f"epoch {lines[0]['epoch']}, step {step}, mean loss of the clients {loss}")
            self._shown, self._said_at = step, now


def say(text: str) -> None:
    """Print a line to stderr; stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


def summary(directory: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Put the clients' own scores and metrics together."""
    scores = {
        name: json.loads((directory / f"{name}-state" / "scores.json").read_text())
        for name in names
    }
    last = [_last_line(directory / f"{name}-state" / "metrics.jsonl") or {} for name in names]
    by_client = [
        {
            observed: (entry["accuracy"], entry["num_samples"])
            for observed, entry in client["by_observed_set"].items()
        }
        for client in scores.values()
    ]
    accuracy, _ = accuracy_over_clients(by_client)
    by_num_blocks = {}
    for num in range(len(names), 0, -1):
        value, num_samples = accuracy_over_clients(
            [{o: s for o, s in c.items() if o.count(",") == num - 1} for c in by_client]
        )
        if num_samples:
            by_num_blocks[str(num)] = {"accuracy": value, "num_samples": num_samples}
    return {
        "steps": max(line.get("step", 0) for line in last),
        "wire_bytes": sum(line.get("wire_bytes") or 0 for line in last),
        "test_accuracy": accuracy,
        "accuracy_by_num_blocks": by_num_blocks,
        "accuracy_by_subset": _by_subset(scores),
    }


def print_tables(result: dict[str, Any], p_miss: float, kept: Path | None) -> None:
    """Print the result for a person."""
    console = Console()
    console.print(
        f"{len(result['clients'])} clients, each block missing with probability "
        f"{p_miss:g}: {result['steps']} steps in {result['seconds']:.1f} s, "
        f"{result['wire_bytes'] / 1e6:.1f} MB on the wire"
    )
    table = Table(title="Test accuracy by number of blocks a sample has")
    for column in ("blocks", "accuracy", "samples"):
        table.add_column(column, justify="right")
    for num, entry in result["accuracy_by_num_blocks"].items():
        table.add_row(num, f"{entry['accuracy']:.3f}", str(entry["num_samples"]))
    table.add_row("all", f"{result['test_accuracy']:.3f}", "", style="bold")
    console.print(table)
    table = Table(title="Test accuracy by subset of blocks used")
    for column, justify in (("subset", "left"), ("accuracy", "right"), ("samples", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for subset, entry in result["accuracy_by_subset"].items():
        name = subset if "," in subset else f"{subset} alone"
        table.add_row(name, f"{entry['accuracy']:.3f}", str(entry["num_samples"]))
    console.print(table)
    if kept:
        console.print(f"configs, logs and models are in {kept}")


def _last_line(path: Path) -> dict[str, Any] | None:
    lines = step_lines(path)
    return lines[-1] if lines else None


def _by_subset(scores: dict[str, Any]) -> dict[str, Any]:
    """Average over the clients of a subset: each has a predictor for it."""
    subsets = sorted(
        {subset for client in scores.values() for subset in client["by_subset"]},
        key=lambda subset: (subset.count(","), [list(scores).index(n) for n in subset.split(",")]),
    )
    result = {}
    for subset in subsets:
        entries = [scores[name]["by_subset"][subset] for name in subset.split(",")]
        known = [entry["accuracy"] for entry in entries if entry["num_samples"]]
        if known:
            result[subset] = {
                "accuracy": sum(known) / len(known),
                "num_samples": max(entry["num_samples"] for entry in entries),
            }
    return result
