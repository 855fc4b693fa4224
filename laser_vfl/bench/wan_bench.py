"""Seconds to a score over a line as organisations have it: as published, and as recommended."""

import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from laser_vfl.atomic_files import replace_file
from laser_vfl.bench.line_probe import probe, slow_line
from laser_vfl.bench.proxy import Proxy
from laser_vfl.bench.replayed_training import ReplayedTraining
from laser_vfl.bench.time_to_score import (
    StepClock,
    first_reaching,
    overlap_limit_s,
    seconds_until,
)
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.experiments.prepared_federation import PrepareOptions, prepare
from laser_vfl.local_federation import LocalFederation, step_lines
from laser_vfl.methods.profiles import DEFAULT_METHOD
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.expected_groups import drawn_groups
from laser_vfl.planning.forecast import Compute, PlannedFederation, Stage, forecast
from laser_vfl.planning.line_settings import settings_for_line
from laser_vfl.planning.measured_compute import measure_compute
from laser_vfl.private_files import FILE_MODE

NUM_CLIENTS = 2
"""So that each has a core, where there are two."""
WARM_UP_STEPS = 20
SCORED_EVERY_S = 0.2
"""About how much of a run's time lies between two scores."""
TIMEOUT_S = 1800.0
ID_SECRET = "id.secret"
SECRET = b"the same order of samples in every run".hex()


@dataclass(frozen=True)
class Way:
    """How to train: what differs from the published settings of the data set."""

    name: str
    training: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] | None = None
    is_for_line: bool = False
    """Whether it changes what `laser-vfl plan` recommends for the line."""


PUBLISHED = Way("published")
RECOMMENDED = Way(
    "recommended",
    {"preset": "default"},
    {"name": "adam", "lr": 0.001},
    is_for_line=True,
)
PIPELINED = Way(
    "pipelined",
    {"preset": "default", "wire_precision": "int8", "pipeline": 3},
    {"name": "adam", "lr": 0.001},
)
"""What hides the line best, and takes more steps."""
WAYS = (PUBLISHED, RECOMMENDED, PIPELINED)


@dataclass(frozen=True)
class WanBenchOptions:
    """Which line, which data, and which score to wait for."""

    line: NetworkLine
    dataset: str = "hapt"
    target: float = 0.92
    epochs: int = 8
    seed: int = 0
    data: Path | None = None


def measure_wan(options: WanBenchOptions) -> dict[str, Any]:
    """Return the seconds to the score both ways, and what their steps take beside the forecast."""
    torch.set_num_threads(1)
    found = probe(options.line)
    ways = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
            ways[way.name], notes = _measure(Path(directory) / "federation", way, options)
    first, second = (ways[way.name]["seconds"] for way in (PUBLISHED, RECOMMENDED))
    return {
        "dataset": options.dataset,
        "target": options.target,
        "clients": NUM_CLIENTS,
        "rtt_ms": options.line.rtt_s * 1e3,
        "mbit_per_s": options.line.bytes_per_s * 8 / 1e6,
        "line": {
            "rtt_ms": round(found.rtt_s * 1e3, 2),
            "mbit_per_s": round(found.bytes_per_s * 8 / 1e6, 2),
        },
        **ways,
        "times_sooner": round(first / second, 2) if first and second else None,
        "notes": notes,
    }


def _measure(out: Path, way: Way, options: WanBenchOptions) -> tuple[dict[str, Any], list[str]]:
    """Train one way; return its figures, and what has to be said of the data."""
    prepared = prepare(
        PrepareOptions(
            dataset=options.dataset,
            out=out,
            clients=NUM_CLIENTS,
            p_miss=0.0,
            p_miss_test=0.0,
            method=DEFAULT_METHOD,
            seed=options.seed,
            insecure=True,  # certificates are made with the federation
            root=options.data,
        )
    )
    coordinator, clients = _configs(out, way, options)
    if way.is_for_line:
        _suit_line(out, coordinator, clients, prepared["num_samples"]["train"], options)
    settings = TrainingSettings.model_validate(coordinator["training"])
    compute = _compute(out, clients, settings, prepared["num_samples"]["train"])
    _train(out, coordinator, clients, options.line)
    lines = {name: step_lines(out / f"{name}-state" / "metrics.jsonl") for name in clients}
    planned = _forecast(settings, list(clients), prepared["num_samples"]["train"], options, compute)
    return _figures(out, settings, lines, planned, options), prepared["notes"]


def _configs(
    out: Path, way: Way, options: WanBenchOptions
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the prepared configurations, changed for this way, at any free port."""
    replace_file(out / ID_SECRET, SECRET.encode(), mode=FILE_MODE)
    coordinator = yaml.safe_load((out / "coordinator.yaml").read_text())
    names = coordinator["clients"]
    coordinator |= {"listen": "127.0.0.1:0", "alignment": "hmac", "log_level": "warning"}
    coordinator["training"] |= {**way.training, "epochs": options.epochs}
    clients = {}
    for name in names:
        config = yaml.safe_load((out / f"{name}.yaml").read_text())
        for key in ("advertise", "predict_listen"):
            config.pop(key, None)
        config |= {"listen": "127.0.0.1:0", "threads": 1, "log_level": "warning"}
        config["id_secret_file"] = ID_SECRET
        if way.optimizer is not None:
            config["optimizer"] = dict(way.optimizer)
        clients[name] = config
    return coordinator, clients


def _suit_line(
    out: Path,
    coordinator: dict[str, Any],
    clients: dict[str, dict[str, Any]],
    num_samples: int,
    options: WanBenchOptions,
) -> None:
    """Change the settings to what `laser-vfl plan` recommends for the line."""
    settings = TrainingSettings.model_validate(coordinator["training"])
    compute = _compute(out, clients, settings, num_samples)
    planned = _planned(settings, list(clients), num_samples)
    if (found := settings_for_line(planned, options.line, compute)) is None:
        return
    coordinator["training"] |= found.training
    for config in clients.values():
        config["optimizer"] = {
            **config["optimizer"],
            "lr": config["optimizer"]["lr"] * found.rate_factor,
        }


def _train(
    out: Path,
    coordinator: dict[str, Any],
    clients: dict[str, dict[str, Any]],
    line: NetworkLine,
) -> None:
    """Have real processes train, with the line between the two clients.

    The second one is dialled by the first, through the proxy. Both reach the coordinator directly:
    it has no part in a step.
    """
    dialled = list(clients)[-1]
    with Proxy() as proxy, LocalFederation(out, insecure=False) as federation:
        slow_line(proxy, line)
        address = federation.start_coordinator(coordinator)
        configs = {name: {**config, "coordinator": address} for name, config in clients.items()}
        configs[dialled]["advertise"] = proxy.address
        federation.start_clients(configs)
        listening = json.loads((out / f"{dialled}-state" / "listening.json").read_text())
        proxy.target = listening["listen"]
        federation.wait(TIMEOUT_S)


def _compute(
    out: Path, clients: dict[str, dict[str, Any]], settings: TrainingSettings, num_samples: int
) -> Compute:
    """Measure the computing of a step as `laser-vfl plan --client-config` does."""
    name, config = next(iter(clients.items()))
    path = out / f"planned-{name}.yaml"
    path.write_text(yaml.safe_dump({**config, "coordinator": "127.0.0.1:1"}))
    federation = _planned(settings, list(clients), num_samples)
    return measure_compute(federation, load_config(path, ClientConfig), 0, None)


def _planned(settings: TrainingSettings, names: list[str], num_samples: int) -> PlannedFederation:
    groups = drawn_groups(num_samples, [0.0] * len(names))
    return PlannedFederation(settings, tuple(names), tuple(names), groups)


def _forecast(
    settings: TrainingSettings,
    names: list[str],
    num_samples: int,
    options: WanBenchOptions,
    compute: Compute,
) -> Stage:
    return forecast(_planned(settings, names, num_samples), options.line, compute).training


def _figures(
    out: Path,
    settings: TrainingSettings,
    lines: Mapping[str, list[dict[str, Any]]],
    planned: Stage,
    options: WanBenchOptions,
) -> dict[str, Any]:
    clocks = [StepClock.of(each) for each in lines.values()]
    step_s = max(clock.step_s(WARM_UP_STEPS) for clock in clocks)
    replayed = ReplayedTraining.of(out, list(lines), settings)
    scores = list(replayed.scores(max(1, round(SCORED_EVERY_S / step_s))))
    replayed.check()
    reached_at = first_reaching(scores, options.target)
    # The metrics begin when the first step is done.
    seconds = 0.0 if reached_at is None else seconds_until(clocks, reached_at) + step_s
    num_bytes = statistics.mean(_per_step(each, "wire_bytes") for each in lines.values())
    compute_s = planned.compute_s / planned.num_steps
    limit_s = overlap_limit_s(compute_s, num_bytes, options.line, settings.pipeline)
    return {
        "settings": {
            "preset": settings.preset,
            "batch_size": settings.batch_size,
            "wire_precision": settings.wire_precision,
            "pipeline": settings.pipeline,
            "optimizer": replayed.configs[0].optimizer.model_dump(exclude_defaults=True),
        },
        "seconds": None if reached_at is None else round(seconds, 3),
        "steps": reached_at,
        "best_accuracy": round(max(score for _, score in scores), 4),
        "last_accuracy": round(scores[-1][1], 4),
        "num_steps": scores[-1][0],
        "step_ms": round(step_s * 1e3, 2),
        "limit_ms": round(limit_s * 1e3, 2),
        "step_to_limit": round(step_s / limit_s, 3),
        "planned_ms": round(planned.step_s * 1e3, 2),
        "planned_to_step": round(planned.step_s / step_s, 3),
        "compute_ms": round(compute_s * 1e3, 2),
        "client_cpu_ms": round(
            statistics.mean(_per_step(each, "cpu_s") for each in lines.values()) * 1e3, 2
        ),
        "wire_bytes_per_step": round(num_bytes),
    }


def _per_step(lines: list[dict[str, Any]], what: str) -> float:
    """Return by how much a counter of a client grew in a step, on average."""
    first, last = lines[0], lines[-1]
    num_steps = last["step"] - first["step"]
    return ((last[what] or 0) - (first[what] or 0)) / num_steps if num_steps else 0.0
