"""How long a federation takes from starting its processes to its first step, phase by phase."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.tables.block import load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.local_federation import LocalFederation, step_lines
from laser_vfl.observability.audit_log import FILE_NAME

NUM_FEATURES, NUM_CLASSES, WIDTH, BATCH_SIZE = 32, 10, 32, 64
ENDLESS = 2**31 - 1
"""Epochs of a run that is stopped after its first step."""

POLL_S = 0.01
TIMEOUT_S = 600.0
TABLE_KEY = b"only for how long hashing takes"

IMPORTING = """
import gc, time
gc.disable()
began = time.process_time()
import {module}
print(time.process_time() - began)
"""
"""A client, too, imports without garbage collection."""


@dataclass(frozen=True)
class StartBenchOptions:
    """How much work to measure."""

    clients: int
    rows: int
    repeats: int
    tls: bool = False


def measure_start(options: StartBenchOptions) -> dict[str, Any]:
    """Return the median of each phase, and CPU times, which other work disturbs less."""
    rounds = [_start_once(options) | _import_once() for _ in range(options.repeats)]
    medians = {key: round(statistics.median(one[key] for one in rounds), 3) for key in rounds[0]}
    return {
        "clients": options.clients,
        "rows": options.rows,
        "repeats": options.repeats,
        **medians,
        "import_ratio": round(medians["import_cpu_s"] / medians["torch_cpu_s"], 3),
        "tls": options.tls,
    }


def _import_once() -> dict[str, float]:
    """Return the CPU time of importing all that a client needs, and of importing torch alone."""
    return {
        "import_cpu_s": _importing("laser_vfl.cli.main, laser_vfl.client.daemon"),
        "torch_cpu_s": _importing("torch"),
    }


def _importing(module: str) -> float:
    command = [sys.executable, "-c", IMPORTING.format(module=module)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _start_once(options: StartBenchOptions) -> dict[str, float]:
    names = [f"client{k}" for k in range(options.clients)]
    with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as name:
        directory = Path(name)
        _write_tables(directory, names, options.rows)
        with LocalFederation(directory, insecure=not options.tls) as federation:
            began = time.time()
            address = federation.start_coordinator(_coordinator_config(names))
            coordinator_ready = time.time()
            federation.start_clients({name: _client_config(name, address) for name in names})
            ready = time.time()
            ready_cpu_s = [_cpu_s(pid) for who, pid in federation.pids.items() if who in names]
            first = _first_steps(directory, names)
        tables_s = _time_tables(directory / f"{names[0]}.yaml")
        events = _events(directory / "coordinator-state" / FILE_NAME)
    joined = max(_when(event) for event in events if event["event"] == "joined")
    aligned, started = (
        min(_when(event) for event in events if event.get(key) == value)
        for key, value in (("outcome", "aligned"), ("state", "started"))
    )
    done = max(line["time"] for line in first)
    return {
        "coordinator_s": coordinator_ready - began,
        "ready_s": ready - coordinator_ready,
        "tables_s": tables_s,
        "registration_s": max(joined - ready, 0.0),
        "alignment_s": aligned - max(joined, ready),
        "first_step_s": done - started,
        "total_s": done - began,
        "ready_cpu_s": statistics.median(ready_cpu_s),
        "first_step_cpu_s": statistics.median(line["cpu_s"] for line in first),
        "rss_mb": max(line["rss_mb"] for line in first),
    }


def _write_tables(directory: Path, names: Sequence[str], num_rows: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_CLASSES, num_rows)
    for name in names:
        features = rng.standard_normal((num_rows, NUM_FEATURES)).astype(np.float32)
        np.savez(directory / f"{name}.npz", id=np.arange(num_rows), x=features, y=labels)


def _coordinator_config(names: Sequence[str]) -> dict[str, Any]:
    return {
        "federation": "bench",
        "listen": "127.0.0.1:0",
        "state": "./coordinator-state",
        "clients": list(names),
        "training": {
            "representation_dim": WIDTH,
            "batch_size": BATCH_SIZE,
            "epochs": ENDLESS,
            "seed": 1,
        },
    }


def _client_config(name: str, coordinator: str) -> dict[str, Any]:
    return {
        "federation": "bench",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": coordinator,
        "state": f"./{name}-state",
        "data": {"train": f"{name}.npz", "id": "id", "label": "y"},
        "model": {"representation": "mlp", "hidden": [WIDTH]},
        "threads": 1,
        "log_level": "warning",
    }


def _cpu_s(pid: int) -> float:
    return sum(psutil.Process(pid).cpu_times()[:2])


def _first_steps(directory: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Wait until all clients have trained a step; return what their metrics say of it."""
    give_up_at = time.monotonic() + TIMEOUT_S
    files = [directory / f"{name}-state" / "metrics.jsonl" for name in names]
    while True:
        lines = [step_lines(file)[:1] for file in files]
        if all(lines):
            return [line for (line,) in lines]
        if time.monotonic() > give_up_at:
            raise TrainingStopped(f"the federation did not train within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def _time_tables(config: Path) -> float:
    """Return how long the tables of a client take, read in this process."""
    loaded = load_config(config, ClientConfig)
    began = time.perf_counter()
    load_block(loaded, TABLE_KEY)
    return time.perf_counter() - began


def _events(audit_log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit_log.read_text().splitlines()]


def _when(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()
