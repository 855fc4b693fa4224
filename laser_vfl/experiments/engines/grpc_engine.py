"""The engine `grpc`: a run as a real federation of daemons on loopback, with mutual TLS."""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.evaluation.metrics import accuracy_over_clients, f1_over_clients
from laser_vfl.experiments.grid.case import Case, Metric, PMiss, Result
from laser_vfl.experiments.grid.case_settings import case_settings
from laser_vfl.experiments.grid.experiment_settings import DataChoices
from laser_vfl.experiments.grid.names import DATASETS
from laser_vfl.experiments.prepared_federation import LABEL, PrepareOptions, prepare
from laser_vfl.local_federation import LocalFederation, step_lines, write_own_key

TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True)
class _Trained:
    """What the clients of a federation have left behind."""

    scores: dict[str, dict[str, Any]]
    num_steps: int
    seconds_per_step: float


def run_case(case: Case, data: Path | None = None) -> list[Result]:
    """Train a federation for each `p_test`, since a client has one test table."""
    return [_result(case, p_test, _train(case, p_test, data)) for p_test in case.p_test]


def _train(case: Case, p_test: PMiss, data: Path | None) -> _Trained:
    with tempfile.TemporaryDirectory(prefix="laser-vfl-experiment-") as directory:
        out = Path(directory) / "federation"
        options = PrepareOptions(
            dataset=case.dataset,
            out=out,
            clients=case.num_clients,
            p_miss=case.p_train,
            p_miss_test=p_test,
            method=case.method,
            seed=case.seed,
            insecure=True,  # certificates are made with the federation
            root=data,
        )
        prepare(options)
        coordinator, clients = _configs(out, options.names, case)
        for name in clients:
            origin = f"laser-vfl experiment {name} {case.seed}"
            write_own_key(out / f"{name}-state", origin)
        started = time.monotonic()
        with LocalFederation(out, insecure=False) as federation:
            address = federation.start_coordinator(coordinator)
            federation.start_clients({n: {**c, "coordinator": address} for n, c in clients.items()})
            federation.wait(TIMEOUT_S)
        return _left_behind(out, list(clients), time.monotonic() - started)


def _configs(
    out: Path, names: tuple[str, ...], case: Case
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the prepared configurations with the settings of the case, at any free port."""
    settings = case_settings(case)
    labelled = DataChoices.model_validate(settings.data).labelled(names)
    coordinator = _read(out / "coordinator.yaml")
    coordinator["training"] |= settings.training
    coordinator["listen"] = "127.0.0.1:0"
    clients = {}
    for name in names:
        config = _read(out / f"{name}.yaml")
        for key in ("advertise", "predict_listen"):
            config.pop(key, None)
        config |= {"listen": "127.0.0.1:0", "threads": 1, "log_level": "warning"}
        config |= {"model": settings.client_model, "optimizer": settings.optimizer}
        config["data"] |= settings.client_data
        if name not in labelled:
            config["data"] = {
                key: value
                for key, value in config["data"].items()
                if key not in ("label", "task", "class_weights")
            } | {"exclude": [LABEL]}
        clients[name] = config
    return coordinator, clients


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def _left_behind(out: Path, names: list[str], seconds: float) -> _Trained:
    states = {name: out / f"{name}-state" for name in names}
    scores = {
        name: json.loads((state / "scores.json").read_text())
        for name, state in states.items()
        if (state / "scores.json").exists()
    }
    num_steps, seconds_per_step = 0, 0.0
    for state in states.values():
        lines = step_lines(state / "metrics.jsonl")
        if not lines:
            continue
        first, last = lines[0], lines[-1]
        num_steps = max(num_steps, last["step"])
        if last["step"] > first["step"]:
            spent = (last["time"] - first["time"]) / (last["step"] - first["step"])
            seconds_per_step = max(seconds_per_step, spent)
    if not num_steps:
        raise TrainingStopped("the federation has taken no step")
    return _Trained(scores, num_steps, seconds_per_step or seconds / num_steps)


def _result(case: Case, p_test: PMiss, trained: _Trained) -> Result:
    metric = DATASETS[case.dataset].metric
    score = _combined(metric, list(trained.scores.values()))
    if score is None:
        raise TrainingStopped("no client has scored a test sample")
    return Result(
        dataset=case.dataset,
        method=case.method,
        variant=case.variant,
        p_train=case.p_train,
        p_test=p_test,
        seed=case.seed,
        num_clients=case.num_clients,
        metric=metric,
        score=score,
        by_client={name: each["overall"][metric] for name, each in trained.scores.items()},
        num_steps=trained.num_steps,
        seconds=trained.num_steps * trained.seconds_per_step,
        seconds_per_step=trained.seconds_per_step,
        engine="grpc",
    )


def _combined(metric: Metric, scores: list[dict[str, Any]]) -> float | None:
    """Return the paper's metric over clients."""
    if metric == "f1":
        return f1_over_clients([client["overall"]["f1"] for client in scores])
    by_observed_set = [
        {
            name: (entry["accuracy"], entry["num_samples"])
            for name, entry in client["by_observed_set"].items()
        }
        for client in scores
    ]
    return accuracy_over_clients(by_observed_set)[0]
