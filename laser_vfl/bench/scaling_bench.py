"""What a step, an answer and a client's memory cost as more clients share one machine."""

import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from laser_vfl.atomic_files import replace_file
from laser_vfl.core.errors import NotReady
from laser_vfl.local_federation import LocalFederation, step_lines
from laser_vfl.private_files import FILE_MODE
from laser_vfl.remote.predictor import Predictor

NUM_FEATURES, NUM_CLASSES, WIDTH, BATCH_SIZE, STEPS_PER_EPOCH = 8, 3, 8, 32, 10
NUM_ROWS = BATCH_SIZE * STEPS_PER_EPOCH
ID_SECRET = "id.secret"
PATIENCE_S = 30.0
POLL_S = 0.1
TIMEOUT_S = 1200.0


@dataclass(frozen=True)
class ScalingBenchOptions:
    """How much work to measure."""

    clients: Sequence[int]
    steps: int
    requests: int


def measure_scaling(options: ScalingBenchOptions) -> dict[str, Any]:
    """Return the figures for each number of clients, and how they grow from the first to the last.

    An exponent of 1 is what grows in proportion to the clients, 0 is what stays the same.
    """
    curve = [_measure(num, options) for num in options.clients]
    result: dict[str, Any] = {"curve": curve}
    first, last = curve[0], curve[-1]
    if last["clients"] == first["clients"]:
        return result
    scale = math.log(last["clients"] / first["clients"])
    for key in ("step_ms", "client_cpu_ms", "answer_ms"):
        result[f"{key.rpartition('_')[0]}_exponent"] = round(
            math.log(last[key] / first[key]) / scale, 3
        )
    result["rss_ratio"] = round(last["rss_mb"] / first["rss_mb"], 3)
    return result


def _measure(num_clients: int, options: ScalingBenchOptions) -> dict[str, Any]:
    names = [f"client{k}" for k in range(num_clients)]
    num_steps = -(-options.steps // STEPS_PER_EPOCH) * STEPS_PER_EPOCH
    with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as name:
        directory = Path(name)
        _write_inputs(directory, names)
        with LocalFederation(directory, insecure=True) as federation:
            began = time.monotonic()
            address = federation.start_coordinator(_coordinator_config(names, num_steps))
            configs = {name: _client_config(name, address) for name in names}
            federation.start_clients(configs, stay=True)
            ready_s = time.monotonic() - began
            figures = _training_figures(directory, names, num_steps)
            with Predictor(federation.predict_addresses[names[0]]) as predictor:
                figures["answer_ms"] = _answer_ms(predictor, options.requests)
            asked = psutil.Process(federation.pids[names[0]])
            figures["open_files"] = asked.num_fds()
            figures["threads"] = asked.num_threads()
            coordinator = psutil.Process(federation.pids["coordinator"])
            figures["coordinator_rss_mb"] = coordinator.memory_info().rss / 1e6
    rounded = {key: round(value, 3) for key, value in figures.items()}
    return {"clients": num_clients, "steps": num_steps, "ready_s": round(ready_s, 3), **rounded}


def _write_inputs(directory: Path, names: Sequence[str]) -> None:
    rng = np.random.default_rng(0)
    replace_file(directory / ID_SECRET, rng.bytes(32).hex().encode(), mode=FILE_MODE)
    labels = rng.integers(0, NUM_CLASSES, NUM_ROWS)
    for name in names:
        features = rng.standard_normal((NUM_ROWS, NUM_FEATURES)).astype(np.float32)
        np.savez(directory / f"{name}.npz", id=np.arange(NUM_ROWS), x=features, y=labels)


def _coordinator_config(names: Sequence[str], num_steps: int) -> dict[str, Any]:
    return {
        "federation": "bench",
        "listen": "127.0.0.1:0",
        "state": "./coordinator-state",
        "clients": list(names),
        "alignment": "hmac",
        "training": {
            "representation_dim": WIDTH,
            "batch_size": BATCH_SIZE,
            "epochs": num_steps // STEPS_PER_EPOCH,
            "seed": 1,
        },
        "log_level": "warning",
    }


def _client_config(name: str, coordinator: str) -> dict[str, Any]:
    return {
        "federation": "bench",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": coordinator,
        "state": f"./{name}-state",
        "data": {"train": f"{name}.npz", "id": "id", "label": "y"},
        "id_secret_file": ID_SECRET,
        "model": {"representation": "mlp", "hidden": [WIDTH], "fusion": "linear"},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "threads": 1,
        "log_level": "warning",
        "serving": {"requests_per_s": 1e6, "samples_per_s": 1e8},
    }


def _training_figures(directory: Path, names: Sequence[str], num_steps: int) -> dict[str, float]:
    """Wait for the end of the training; return what the metrics say, of the slowest and largest.

    Times are of the steps after the first, which has to load and to connect.
    """
    give_up_at = time.monotonic() + TIMEOUT_S
    files = [directory / f"{name}-state" / "metrics.jsonl" for name in names]
    while any(
        (lines := step_lines(file)[-1:]) == [] or lines[0]["step"] < num_steps for file in files
    ):
        if time.monotonic() > give_up_at:
            raise NotReady(f"the federation has not trained within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    ends = [(lines[0], lines[-1]) for lines in map(step_lines, files)]

    def per_step_ms(key: str) -> list[float]:
        return [
            (last[key] - first[key]) / (last["step"] - first["step"]) * 1e3 for first, last in ends
        ]

    return {
        "step_ms": max(per_step_ms("time")),
        "client_cpu_ms": statistics.mean(per_step_ms("cpu_s")),
        "rss_mb": max(last["rss_mb"] for _, last in ends),
        "rss_growth_mb": max(last["rss_mb"] - first["rss_mb"] for first, last in ends),
    }


def _answer_ms(predictor: Predictor, num_requests: int) -> float:
    """Return the median time of an answer about one person, with the blocks of all clients."""
    give_up_at = time.monotonic() + TIMEOUT_S
    while not _has_all_blocks(predictor):
        if time.monotonic() > give_up_at:
            raise NotReady("the federation does not answer with all blocks")
        time.sleep(POLL_S)
    times = []
    for person in range(num_requests):
        began = time.perf_counter()
        predictor.predict([person % NUM_ROWS], deadline=PATIENCE_S)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _has_all_blocks(predictor: Predictor) -> bool:
    try:
        return bool(predictor.predict([0], deadline=PATIENCE_S).blocks.all())
    except NotReady:
        return False
