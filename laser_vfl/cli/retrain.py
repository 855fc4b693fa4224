"""`retrain`: ask the coordinator for a new run, and wait until it has really started."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from laser_vfl.cli.daemon_config import DaemonConfig
from laser_vfl.cli.option_parsers import parse_seconds
from laser_vfl.cli.own_daemon import own_coordinator
from laser_vfl.cli.status import asked_as, problems
from laser_vfl.core.errors import ConfigError, TrainingStopped, printable
from laser_vfl.remote.calls import Access, coordinator_access
from laser_vfl.remote.operations import coordinator_status, retrain

POLL_S = 0.3

SEED = "training.seed"


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
    requester = RunRequester(coordinator, config, files, timeout)
    requester.ask(lambda address, access: retrain(address, access, seed), as_json=as_json)


class RunRequester:
    """Asks a coordinator for a run, in whichever way, and waits until it has started."""

    def __init__(
        self,
        coordinator: str | None,
        config: Path | None,
        files: tuple[Path | None, Path | None, Path | None],
        timeout: str,
    ) -> None:
        self._timeout_s = parse_seconds(timeout, "--timeout")
        self._path = config
        self._address, self._access, self._config = asked_coordinator(coordinator, config, files)

    def ask(self, for_a_run: Callable[[str, Access], Mapping[str, Any]], *, as_json: bool) -> None:
        """Ask, wait, and print the run and its seed. The call that asks returns its `seed`."""
        address, access = self._address, self._access
        before = coordinator_status(address, access)
        if self._config is not None and self._path is not None:
            check_same(self._config, before, self._path)
        asked = for_a_run(address, access)
        give_up_at = time.monotonic() + self._timeout_s
        while True:
            status = coordinator_status(address, access)
            run = started_run(before, status, asked["seed"])
            if run is not None:
                break
            if is_taken_back(status):
                raise _taken_back(status)
            if time.monotonic() >= give_up_at:
                raise _not_started(status, asked_as(self._path, address))
            time.sleep(min(POLL_S, max(0.0, give_up_at - time.monotonic())))
        if as_json:
            state = "training" if status["training"] else "finished"
            print(json.dumps({"run": run, "seed": asked["seed"], "state": state}))
        else:
            print(f"run {run} has started with seed {asked['seed']}")


def asked_coordinator(
    coordinator: str | None,
    config: Path | None,
    files: tuple[Path | None, Path | None, Path | None],
) -> tuple[str, Access, DaemonConfig | None]:
    """Return which coordinator to ask, and as whom; its configuration, if that is here."""
    if (coordinator is None) == (config is None):
        problem = "not said" if config is None else "said twice"
        raise ConfigError(
            f"whom to ask is {problem}", hint="give --config of the coordinator, or --coordinator"
        )
    if config:
        daemon = own_coordinator(config)
        return daemon.address, daemon.access, daemon.config
    assert coordinator is not None
    return coordinator, coordinator_access(coordinator, *files), None


def check_same(config: DaemonConfig, status: dict[str, Any], path: Path) -> None:
    """Raise if the file is not what the coordinator was started with: a run would not follow it.

    The seed may differ: a run that is asked for has one of its own.
    """
    from laser_vfl.coordinator.config import CoordinatorConfig

    assert isinstance(config, CoordinatorConfig)
    running: dict[str, Any] = {"clients": [client["client"] for client in status["clients"]]}
    written: dict[str, Any] = {"clients": config.clients}
    for key, value in (status["settings"] or {}).items():
        running[f"training.{key}"] = value
        written[f"training.{key}"] = getattr(config.training, key, None)
    terms = config.run_terms()
    for key, text in status["run_terms"].items():
        running[key] = _value(text)
        written[key] = _value(terms.get(key, "null"))
    different = [key for key in running if running[key] != written[key] and key != SEED]
    if different:
        key, *others = different
        and_others = f"; {', '.join(others)} {'differs' if len(others) == 1 else 'differ'}, too"
        raise ConfigError(
            f"{key} is {_shown(written[key])} in this file, and the coordinator was started with "
            f"{_shown(running[key])}{and_others if others else ''}",
            where=str(path),
            hint="restart the coordinator to train with the file as it is now, or undo the change",
        )


def _value(text: str) -> Any:
    """Return the value that a coordinator has told as JSON; anything else as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    if value is None:
        return "left out"
    if isinstance(value, dict):
        return printable(json.dumps(value))
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))


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


def is_taken_back(now: dict[str, Any]) -> bool:
    """Whether no run is asked for or under way, though one was asked for and none has begun."""
    return not now["wanted"] and now["run"] is None


def _taken_back(status: dict[str, Any]) -> TrainingStopped:
    if any(client["has_head"] for client in status["clients"]):
        return TrainingStopped("the run that was asked for was cancelled before it began")
    return TrainingStopped(
        "the run that was asked for was cancelled before it began, or no client has labels",
        hint="the log of the coordinator says which",
    )


def _not_started(status: dict[str, Any], asked: str) -> TrainingStopped:
    text = "asked for, but the run has not started"
    if not status["waiting_for"]:
        return TrainingStopped(text, hint=f"`laser-vfl status {asked}` shows who does what")
    waiting_for = ", ".join(status["waiting_for"])
    waiting_for = "; ".join([f"waiting for {waiting_for}", *problems(status)])
    return TrainingStopped(f"{text}: {waiting_for}", hint="it starts when they are there")
