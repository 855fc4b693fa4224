"""The step time of a federation in containers whose network is slow, against what must be spent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from engine import ROOT
from throttle import Throttle
from trial import CLIENTS, DAEMONS, Trial

RTT_MS = 20.0
MBIT_PER_S = 100.0
TRAINING = {"representation_dim": 128, "batch_size": 128, "epochs": 60}
"""Wide enough that bytes count, and long enough to lose somebody on the way."""
WARM_UP_STEPS = 40

Lines = list[dict[str, Any]]


def write_override(directory: Path) -> Path:
    """Write the files of a federation that trains so, to go on top of deploy/compose.yaml."""
    directory.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load((ROOT / "deploy" / "digits" / "coordinator.yaml").read_text())
    config["training"] |= TRAINING
    (directory / "coordinator.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    override = directory / "override.yaml"
    configs = {"coordinator": {"file": str(directory / "coordinator.yaml")}}
    override.write_text(yaml.safe_dump({"configs": configs}))
    return override


def throttle(trial: Trial, delay: Path) -> Throttle:
    """Have all daemons be far from each other and on slow lines."""
    return Throttle(trial, DAEMONS, delay, one_way_ms=RTT_MS / 2, mbit=MBIT_PER_S)


def measure(trial: Trial, delay: Path) -> dict[str, Any]:
    """Wait for the first run, then time another one on a slow network."""
    trial.wait_for_run()
    with throttle(trial, delay):
        trial.retrain()
        trial.wait_for_run(2)
    metrics = [trial.metrics(name) for name in CLIENTS]
    fast = [_last_run(lines, -2) for lines in metrics]
    slow = [_last_run(lines, -1) for lines in metrics]
    return figures(fast, slow)


def figures(fast: Sequence[Lines], slow: Sequence[Lines]) -> dict[str, Any]:
    """Compare a run on a slow network, by the metrics of each client, with one that has no limits.

    The latter's step time is what a step computes on this machine, exchange and encryption
    included: all clients share its cores.
    """
    compute_ms = max(_step_ms(lines) for lines in fast)
    step_ms = max(_step_ms(lines) for lines in slow)
    num_bytes = max(_bytes_per_step(lines) for lines in slow)
    latency_ms = 2 * RTT_MS / 2
    transfer_ms = num_bytes * 8 / (MBIT_PER_S * 1e6) * 1e3
    limit_ms = latency_ms + transfer_ms + compute_ms
    return {
        "clients": len(slow),
        "steps": slow[0][-1]["step"],
        "rtt_ms": RTT_MS,
        "mbit_per_s": MBIT_PER_S,
        "bytes_per_step": round(num_bytes),
        "compute_ms": round(compute_ms, 2),
        "latency_ms": round(latency_ms, 2),
        "transfer_ms": round(transfer_ms, 2),
        "limit_ms": round(limit_ms, 2),
        "step_ms": round(step_ms, 2),
        "ratio": round(step_ms / limit_ms, 3),
    }


def _last_run(lines: Lines, index: int) -> Lines:
    runs = list(dict.fromkeys(line["run"] for line in lines))
    return [line for line in lines if line["run"] == runs[index]]


def _between(lines: Lines, key: str) -> float:
    """Return by how much something grew in a step, once the first ones are over."""
    first = next(line for line in lines if line["step"] > WARM_UP_STEPS)
    last = lines[-1]
    return float(last[key] - first[key]) / (last["step"] - first["step"])


def _step_ms(lines: Lines) -> float:
    return _between(lines, "time") * 1e3


def _bytes_per_step(lines: Lines) -> float:
    return _between(lines, "wire_bytes")
