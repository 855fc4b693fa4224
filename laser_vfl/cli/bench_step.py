"""`bench step`: a federation of real processes and the oracle on the same work, in the same run."""

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from laser_vfl.cli.metrics_file import step_lines
from laser_vfl.cli.processes import LocalFederation
from laser_vfl.client.block import build_learner, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.core.alignment import align_rows
from laser_vfl.core.oracle import Member, Oracle
from laser_vfl.core.settings import TrainingSettings

NUM_FEATURES, WIDTH, NUM_CLASSES, BATCH_SIZE = 140, 128, 12, 128
STEPS_PER_EPOCH = 50
WARM_UP_STEPS = 20
TIMEOUT_S = 1800.0
ORACLE_KEY = b"the oracle's order of samples"


@dataclass(frozen=True)
class BenchOptions:
    """How much work to measure."""

    steps: int
    repeats: int
    clients: int
    tls: bool = False


def run_bench_step(options: BenchOptions, *, as_json: bool) -> None:
    """Measure and print."""
    settings = TrainingSettings(
        representation_dim=WIDTH,
        batch_size=BATCH_SIZE,
        epochs=_num_epochs(options),
        seed=1,
    )
    names = [f"client{k}" for k in range(options.clients)]
    torch.set_num_threads(1)
    federation, with_tls, oracle_ms = [], [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
            configs = write_inputs(Path(directory), names)
            oracle_ms.append(_time_oracle(Path(directory), configs, settings))
            federation.append(_time_federation(Path(directory), configs, settings))
        if options.tls:
            with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
                configs = write_inputs(Path(directory), names)
                with_tls.append(_time_federation(Path(directory), configs, settings, tls=True))
    result = _summary(options, federation, oracle_ms) | _tls_summary(federation, with_tls)
    if as_json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            Console().print(f"{key:24} {value}")


def _num_epochs(options: BenchOptions) -> int:
    return -(-options.steps // STEPS_PER_EPOCH)


def write_inputs(directory: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Write random tables into a directory; return the clients' configurations by name."""
    rng = np.random.default_rng(0)
    num_rows = BATCH_SIZE * STEPS_PER_EPOCH
    labels = rng.integers(0, NUM_CLASSES, num_rows)
    for name in names:
        features = rng.standard_normal((num_rows, NUM_FEATURES)).astype(np.float32)
        np.savez(directory / f"{name}.npz", id=np.arange(num_rows), x=features, y=labels)
    return {
        name: {
            "federation": "bench",
            "name": name,
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:1",
            "state": f"./{name}-state",
            "data": {"train": f"{name}.npz", "id": "id", "label": "y"},
            "model": {"representation": "mlp", "hidden": [WIDTH, WIDTH]},
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.8},
            "threads": 1,
            "log_level": "warning",
        }
        for name in names
    }


def _time_oracle(
    directory: Path, configs: dict[str, dict[str, Any]], settings: TrainingSettings
) -> float:
    """Return milliseconds per step of the whole federation in this process."""
    names = list(configs)
    loaded = []
    for name, config in configs.items():
        path = directory / f"oracle-{name}.yaml"
        path.write_text(json.dumps(config))
        loaded.append(load_config(path, ClientConfig))
    blocks = [load_block(config, ORACLE_KEY) for config in loaded]
    alignments = align_rows([block.train.digests for block in blocks])
    members = {
        k: Member(
            build_learner(config, block, settings, names, names, torch.device("cpu")),
            alignments[k],
            block.train.inputs,
            block.train.targets,
            block.train.label_weights,
        )
        for k, (config, block) in enumerate(zip(loaded, blocks, strict=True))
    }
    oracle = Oracle(members, settings)
    oracle.run(WARM_UP_STEPS)
    started = time.perf_counter()
    oracle.run()
    return (time.perf_counter() - started) / oracle.num_steps * 1e3


def _time_federation(
    directory: Path,
    configs: dict[str, dict[str, Any]],
    settings: TrainingSettings,
    *,
    tls: bool = False,
) -> dict[str, float]:
    """Return what the clients' own metrics say of the time between their first and last line."""
    with LocalFederation(directory, insecure=not tls) as federation:
        address = federation.start_coordinator(
            {
                "federation": "bench",
                "listen": "127.0.0.1:0",
                "state": "./coordinator-state",
                "clients": list(configs),
                "training": settings.model_dump(),
            }
        )
        federation.start_clients(
            {name: {**config, "coordinator": address} for name, config in configs.items()}
        )
        federation.wait(TIMEOUT_S)
    step_ms, wire_bytes, rss_mb, growth_mb = [], 0.0, [], []
    for name in configs:
        lines = step_lines(directory / f"{name}-state" / "metrics.jsonl")
        first = next(line for line in lines if line["step"] > WARM_UP_STEPS or line is lines[-2])
        last = lines[-1]
        num_steps = last["step"] - first["step"]
        step_ms.append((last["time"] - first["time"]) / num_steps * 1e3)
        wire_bytes += ((last["wire_bytes"] or 0) - (first["wire_bytes"] or 0)) / num_steps
        rss_mb += [line["rss_mb"] for line in lines]
        growth_mb.append(last["rss_mb"] - first["rss_mb"])
    return {
        "step_ms": max(step_ms),
        "wire_bytes": wire_bytes,
        "rss_mb": max(rss_mb),
        "rss_growth_mb": max(growth_mb),
    }


def _summary(
    options: BenchOptions, federation: list[dict[str, float]], oracle_ms: list[float]
) -> dict[str, Any]:
    step_ms = statistics.median(run["step_ms"] for run in federation)
    wire_bytes = statistics.median(run["wire_bytes"] for run in federation)
    payload = options.clients * (options.clients - 1) * BATCH_SIZE * WIDTH * 4 * 2
    oracle = statistics.median(oracle_ms)
    return {
        "clients": options.clients,
        "steps": _num_epochs(options) * STEPS_PER_EPOCH,
        "repeats": options.repeats,
        "federation_step_ms": round(step_ms, 3),
        "oracle_step_ms": round(oracle, 3),
        "ratio": round(step_ms / oracle, 3),
        "wire_bytes_per_step": round(wire_bytes),
        "payload_bytes_per_step": payload,
        "wire_ratio": round(wire_bytes / payload, 4) if payload else None,
        "client_rss_mb_max": round(max(run["rss_mb"] for run in federation), 1),
        "client_rss_growth_mb": round(max(run["rss_growth_mb"] for run in federation), 1),
        "tls": options.tls,
    }


def _tls_summary(
    plain: list[dict[str, float]], with_tls: list[dict[str, float]]
) -> dict[str, float]:
    """Return what mutual TLS costs: the ratio of each pair of runs, and their median."""
    if not with_tls:
        return {}
    ratios = [b["step_ms"] / a["step_ms"] for a, b in zip(plain, with_tls, strict=True)]
    return {
        "tls_step_ms": round(statistics.median(run["step_ms"] for run in with_tls), 3),
        "tls_ratio": round(statistics.median(ratios), 3),
        "tls_ratio_min": round(min(ratios), 3),
        "tls_ratio_max": round(max(ratios), 3),
    }
