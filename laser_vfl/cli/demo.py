"""The demo: digits cut into blocks, one organisation each, blocks missing, real processes."""

import hashlib
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from laser_vfl.cli.processes import LocalFederation
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.metrics import accuracy_over_clients

TIMEOUT_S = 600.0
SAY_EVERY_S = 2.0
TEST_SHARE = 0.25
GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3), 7: (1, 7), 8: (2, 4)}
NAMES = ("bank", "shop", "telco", "clinic", "school", "airline", "library", "museum")


@dataclass(frozen=True)
class DemoOptions:
    """What a person may change about the demo."""

    clients: int
    p_miss: float
    epochs: int
    seed: int
    keep: Path | None


def run_demo(options: DemoOptions, *, as_json: bool) -> None:
    """Run the demo and print its result."""
    with ExitStack() as stack:
        directory = options.keep
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="laser-vfl-")))
        elif directory.exists() and any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", hint="give --keep a new directory")
        directory.mkdir(parents=True, exist_ok=True)
        result = _train(options, directory)
    if as_json:
        print(json.dumps(result))
    else:
        _print_tables(result, options)


def _train(options: DemoOptions, directory: Path) -> dict[str, Any]:
    names = NAMES[: options.clients]
    _write_tables(options, names, directory)
    # A real secret is random; this one follows from the seed, so that a demo can be repeated.
    secret = hashlib.sha256(f"laser-vfl demo {options.seed}".encode()).hexdigest()
    (directory / "id.secret").write_text(secret + "\n")
    started = time.monotonic()
    with LocalFederation(directory, insecure=True) as federation:
        address = federation.start_coordinator(_coordinator_config(options, names))
        federation.start_clients({name: _client_config(name, address) for name in names})
        pids = federation.pids
        _say(f"coordinator pid {pids.pop('coordinator')} on {address}")
        for name, pid in pids.items():
            _say(f"{name} pid {pid}")
        with _Watch(directory, names) as watch:
            federation.wait(TIMEOUT_S, watch)
        seconds = time.monotonic() - started
        pids = federation.pids
    return {
        "clients": list(names),
        "pids": {"coordinator": pids.pop("coordinator"), "clients": pids},
        **_summary(directory, names),
        "seconds": round(seconds, 2),
    }


def _coordinator_config(options: DemoOptions, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "federation": "digits",
        "listen": "127.0.0.1:0",
        "state": "./coordinator-state",
        "clients": list(names),
        "training": {
            "method": "laser",
            "representation_dim": 32,
            "batch_size": 64,
            "epochs": options.epochs,
            "seed": options.seed,
        },
    }


def _client_config(name: str, coordinator: str) -> dict[str, Any]:
    return {
        "federation": "digits",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": coordinator,
        "state": f"./{name}-state",
        "id_secret_file": "id.secret",
        "data": {
            "train": f"{name}_train.csv",
            "test": f"{name}_test.csv",
            "id": "sample",
            "label": "digit",
        },
        "model": {"representation": "mlp", "hidden": [64, 64], "fusion": "linear"},
        "optimizer": {"name": "adam", "lr": 0.003, "weight_decay": 0.0001, "schedule": "cosine"},
    }


def _write_tables(options: DemoOptions, names: tuple[str, ...], directory: Path) -> None:
    """Cut the 8×8 images into one block per organisation and leave rows out at random."""
    images, digits = _load_digits()
    rng = np.random.default_rng(options.seed)
    is_test = rng.permutation(len(images)) < TEST_SHARE * len(images)
    num_rows, num_columns = GRIDS[options.clients]
    blocks = [
        block.reshape(len(images), -1)
        for strip in np.array_split(images, num_rows, axis=1)
        for block in np.array_split(strip, num_columns, axis=2)
    ]
    for name, block in zip(names, blocks, strict=True):
        held = rng.random(len(images)) >= options.p_miss
        for table, chosen in (("train", held & ~is_test), ("test", held & is_test)):
            columns = {f"pixel_{i}": block[chosen, i] for i in range(block.shape[1])}
            frame = pl.DataFrame(
                {"sample": np.flatnonzero(chosen), **columns, "digit": digits[chosen]}
            )
            frame.write_csv(directory / f"{name}_{table}.csv")


def _load_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ConfigError(
            "the demo needs scikit-learn, which is not installed",
            hint="install it with: pip install 'laser-vfl[demo]'",
        ) from None
    data = load_digits()
    return data.images, data.target


class _Watch:
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

    def __enter__(self) -> "_Watch":
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
            _say(f"epoch {lines[0]['epoch']}, step {step}, mean loss of the clients {loss}")
            self._shown, self._said_at = step, now


def _last_line(path: Path) -> dict[str, Any] | None:
    try:
        lines = path.read_text().splitlines()
        return json.loads(lines[-1]) if lines else None
    except (OSError, json.JSONDecodeError):
        return None


def _summary(directory: Path, names: tuple[str, ...]) -> dict[str, Any]:
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


def _print_tables(result: dict[str, Any], options: DemoOptions) -> None:
    console = Console()
    console.print(
        f"{len(result['clients'])} clients, each block missing with probability "
        f"{options.p_miss:g}: {result['steps']} steps in {result['seconds']:.1f} s, "
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
    if options.keep:
        console.print(f"configs, logs and models are in {options.keep}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
