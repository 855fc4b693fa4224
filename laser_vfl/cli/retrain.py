"""`retrain`: ask the coordinator for a new run, and wait until it has really started."""

import json
import time
from pathlib import Path
from typing import Any

from laser_vfl.cli.durations import parse_seconds
from laser_vfl.cli.own_daemon import own_coordinator
from laser_vfl.core.errors import ConfigError, TrainingStopped
from laser_vfl.remote.calls import coordinator_access
from laser_vfl.remote.operations import coordinator_status, retrain

POLL_S = 0.3


def run_retrain(
    coordinator: str | None,
    config: Path | None,
    seed: int | None,
    timeout: str,
    files: tuple[Path | None, Path | None, Path | None],
    *,
    as_json: bool,
) -> None:
    """Ask for a run and print its id and seed."""
    timeout_s = parse_seconds(timeout, "--timeout")
    if (coordinator is None) == (config is None):
        raise ConfigError(
            "whom to ask is not said", hint="give --config of the coordinator, or --coordinator"
        )
    if config:
        daemon = own_coordinator(config)
        address, access = daemon.address, daemon.access
    else:
        assert coordinator is not None
        address, access = coordinator, coordinator_access(coordinator, *files)
    before = coordinator_status(address, access)
    asked = retrain(address, access, seed)
    give_up_at = time.monotonic() + timeout_s
    while True:
        status = coordinator_status(address, access)
        run = started_run(before, status, asked["seed"])
        if run is not None:
            break
        if time.monotonic() >= give_up_at:
            raise _not_started(status)
        time.sleep(min(POLL_S, max(0.0, give_up_at - time.monotonic())))
    if as_json:
        state = "training" if status["training"] else "finished"
        print(json.dumps({"run": run, "seed": asked["seed"], "state": state}))
    else:
        print(f"run {run} has started with seed {asked['seed']}")


def started_run(before: dict[str, Any], now: dict[str, Any], seed: int) -> str | None:
    """Return the run that was asked for once it is training, or has already finished."""
    is_old = before["training"] and before["run"] == now["run"]
    if now["training"] and now["seed"] == seed and not is_old:
        return str(now["run"])
    if now["last_run"] in (None, before["run"] if before["training"] else None, before["last_run"]):
        return None
    if now["last_outcome"] != "finished":
        raise TrainingStopped(f"run {now['last_run']} has stopped: {now['last_outcome']}")
    return str(now["last_run"])


def _not_started(status: dict[str, Any]) -> TrainingStopped:
    text = "asked for, but the run has not started"
    if not status["waiting_for"]:
        return TrainingStopped(text, hint="`laser-vfl status` shows who does what")
    waiting_for = ", ".join(status["waiting_for"])
    return TrainingStopped(
        f"{text}: waiting for {waiting_for}", hint="it starts when they are there"
    )
