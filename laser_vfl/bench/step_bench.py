"""The time of a training step: real processes against the oracle, on the same work."""

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laser_vfl.atomic_files import replace_file
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import build_learner
from laser_vfl.client.tables.block import load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.alignment import align_rows
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.local_federation import LocalFederation, step_lines
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.private_files import FILE_MODE

NUM_FEATURES, WIDTH, NUM_CLASSES, BATCH_SIZE = 140, 128, 12, 128
STEPS_PER_EPOCH = 50
WARM_UP_STEPS = 20
TIMEOUT_S = 1800.0
ORACLE_KEY = b"the oracle's order of samples"
ID_SECRET = "id.secret"
"""Ids are compared under a secret, because that is soon done, and not what is measured."""


@dataclass(frozen=True)
class StepBenchOptions:
    """How much work to measure."""

    steps: int
    repeats: int
    clients: int
    tls: bool = False
    pipeline: int = 0
    """Of the federation; the oracle does one step after the other."""


def measure_steps(options: StepBenchOptions) -> dict[str, Any]:
    """Return times, bytes and memory of a step, and the ratio to the oracle."""
    settings = TrainingSettings(
        representation_dim=WIDTH,
        batch_size=BATCH_SIZE,
        epochs=_num_epochs(options),
        seed=1,
    )
    names = [f"client{k}" for k in range(options.clients)]
    torch.set_num_threads(1)
    overlapping = settings.model_copy(update={"pipeline": options.pipeline})
    federation, with_tls, oracle = [], [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
            configs = write_inputs(Path(directory), names)
            oracle.append(_time_oracle(Path(directory), configs, settings))
            federation.append(_time_federation(Path(directory), configs, overlapping))
        if options.tls:
            with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
                configs = write_inputs(Path(directory), names)
                with_tls.append(_time_federation(Path(directory), configs, overlapping, tls=True))
    return _summary(options, federation, oracle) | _tls_summary(federation, with_tls)


def _num_epochs(options: StepBenchOptions) -> int:
    return -(-options.steps // STEPS_PER_EPOCH)


def write_inputs(directory: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Write random tables into a directory; return the clients' configurations by name.

    They have a secret for ids in common, so the coordinator's alignment can be by hmac.
    """
    rng = np.random.default_rng(0)
    replace_file(directory / ID_SECRET, rng.bytes(32).hex().encode(), mode=FILE_MODE)
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
            "id_secret_file": ID_SECRET,
            "model": {"representation": "mlp", "hidden": [WIDTH, WIDTH]},
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.8},
            "threads": 1,
            "log_level": "warning",
        }
        for name in names
    }


def _time_oracle(
    directory: Path, configs: dict[str, dict[str, Any]], settings: TrainingSettings
) -> dict[str, float]:
    """Return what a step of the whole federation takes in this process, of time and of CPU time."""
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
    started, cpu_before = time.perf_counter(), time.process_time()
    oracle.run()
    return {
        "step_ms": (time.perf_counter() - started) / oracle.num_steps * 1e3,
        "cpu_ms": (time.process_time() - cpu_before) / oracle.num_steps * 1e3,
    }


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
                "alignment": "hmac",
                "training": settings.model_dump(),
            }
        )
        federation.start_clients(
            {name: {**config, "coordinator": address} for name, config in configs.items()}
        )
        federation.wait(TIMEOUT_S)
    step_ms, cpu_ms, wire_bytes, rss_mb, growth_mb = [], [], 0.0, [], []
    for name in configs:
        lines = step_lines(directory / f"{name}-state" / "metrics.jsonl")
        first = next(line for line in lines if line["step"] > WARM_UP_STEPS or line is lines[-2])
        last = lines[-1]
        num_steps = last["step"] - first["step"]
        step_ms.append((last["time"] - first["time"]) / num_steps * 1e3)
        cpu_ms.append((last["cpu_s"] - first["cpu_s"]) / num_steps * 1e3)
        wire_bytes += ((last["wire_bytes"] or 0) - (first["wire_bytes"] or 0)) / num_steps
        rss_mb += [line["rss_mb"] for line in lines]
        growth_mb.append(last["rss_mb"] - first["rss_mb"])
    return {
        "step_ms": max(step_ms),
        "cpu_ms": statistics.mean(cpu_ms),
        "wire_bytes": wire_bytes,
        "rss_mb": max(rss_mb),
        "rss_growth_mb": max(growth_mb),
    }


def _summary(
    options: StepBenchOptions,
    federation: list[dict[str, float]],
    oracle: list[dict[str, float]],
) -> dict[str, Any]:
    step_ms, alone_ms = _median("step_ms", federation), _median("step_ms", oracle)
    cpu_ms, share_ms = _median("cpu_ms", federation), _median("cpu_ms", oracle) / options.clients
    wire_bytes = statistics.median(run["wire_bytes"] for run in federation)
    payload = options.clients * (options.clients - 1) * BATCH_SIZE * WIDTH * 4 * 2
    return {
        "clients": options.clients,
        "steps": _num_epochs(options) * STEPS_PER_EPOCH,
        "repeats": options.repeats,
        "pipeline": options.pipeline,
        "federation_step_ms": round(step_ms, 3),
        "oracle_step_ms": round(alone_ms, 3),
        "ratio": round(step_ms / alone_ms, 3),
        "client_cpu_ms": round(cpu_ms, 3),
        "oracle_cpu_ms": round(share_ms, 3),
        "cpu_ratio": round(cpu_ms / share_ms, 3),
        "wire_bytes_per_step": round(wire_bytes),
        "payload_bytes_per_step": payload,
        "wire_ratio": round(wire_bytes / payload, 4) if payload else None,
        "client_rss_mb_max": round(max(run["rss_mb"] for run in federation), 1),
        "client_rss_growth_mb": round(max(run["rss_growth_mb"] for run in federation), 1),
        "tls": options.tls,
    }


def _median(what: str, runs: list[dict[str, float]]) -> float:
    return statistics.median(run[what] for run in runs)


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
