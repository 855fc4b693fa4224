"""`runs list`: the runs that a federation or a client has, and who holds one back."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.own_daemon import own_daemon
from laser_vfl.cli.retrain import asked_coordinator
from laser_vfl.cli.status import asked_as, held_lines, local_time, next_run_line
from laser_vfl.cli.terminal_tables import add_row, new_table, say
from laser_vfl.client.config import ClientConfig
from laser_vfl.remote.operations import client_status, coordinator_status


def run_list(
    coordinator: str | None,
    config: Path | None,
    files: tuple[Path | None, Path | None, Path | None],
    *,
    as_json: bool,
) -> None:
    """Ask a daemon and print what it knows of runs."""
    if config is not None and coordinator is None:
        daemon = own_daemon(config)
        if isinstance(daemon.config, ClientConfig):
            status = client_status(daemon.address, daemon.access)
            _run_list_client(status, config, as_json=as_json)
            return
    address, access, _ = asked_coordinator(coordinator, config, files)
    listed = listing(coordinator_status(address, access))
    if as_json:
        print(json.dumps(listed, ensure_ascii=False))
    else:
        print_listing(listed, Console(), asked_as(config, coordinator))


def _run_list_client(status: dict[str, Any], config: Path, *, as_json: bool) -> None:
    listed = client_listing(status)
    if as_json:
        print(json.dumps(listed, ensure_ascii=False))
        return
    console = Console()
    table = new_table("run", "state", "trained", ">score")
    for run in listed["runs"]:
        trained = local_time(run["trained_at"], "%Y-%m-%d %H:%M") if run["trained_at"] else ""
        score = "" if run["score"] is None else f"{run['score']:.3f}"
        add_row(table, run["run"], run["state"], trained, score)
    console.print(table)
    for line in held_lines(status, config):
        say(console, line)


def client_listing(status: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a client's status."""
    next_state = "published" if status["next_is_published"] else "held"
    models = ((status["model"], "served"), (status["next_model"], next_state))
    return {
        "runs": [
            {
                "run": model["run"],
                "state": state,
                "trained_at": model["trained_at"],
                "score_name": model["score_name"],
                "score": model["score"],
            }
            for model, state in models
            if model is not None
        ],
        "held_by": status["held_by"],
    }


def listing(status: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a federation's status."""
    return {
        "runs": [
            {"run": run, "state": state, "served_by": _served_by(status, run)}
            for run, state in _states(status).items()
        ],
        "held_by": status["held_by"],
        "requests": status["requests"],
        "next_run_at": status["next_run_at"],
        "next_run": next_run(status),
    }


def next_run(status: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run that is asked for and has not begun, by whom it waits for; None without."""
    if not status["wanted"] or status["run"]:
        return None
    return {"seed": status["seed"], "waiting_for": status["waiting_for"]}


def print_listing(
    listed: dict[str, Any], console: Console, asked: str = "--config coordinator.yaml"
) -> None:
    """Print a listing for a person; `asked` is the option that says of which coordinator."""
    table = new_table("run", "state", "served by")
    for run in listed["runs"]:
        add_row(table, run["run"], run["state"], ", ".join(run["served_by"]))
    console.print(table)
    if listed["held_by"]:
        say(console, f"the run that is held waits for {', '.join(listed['held_by'])}")
    if listed["next_run"]:
        say(console, next_run_line(listed["next_run"]["waiting_for"]))
    for client in listed["requests"]:
        how = f"`laser-vfl runs approve {client} {asked}`"
        say(console, f"{client} asks for a run; {how} lets it start")
    if listed["next_run_at"]:
        say(console, f"next run by the schedule at {local_time(listed['next_run_at'])}")


def _states(status: dict[str, Any]) -> dict[str, str]:
    """Return each run that is served, under way or the last, and how it is; the newest last."""
    served = sorted({c["model_run"] for c in status["clients"] if c["model_run"]})
    found = dict.fromkeys(served, "finished")
    if status["last_run"]:
        found.pop(status["last_run"], None)
        found[status["last_run"]] = status["last_outcome"]
    if status["held_run"]:
        found.pop(status["held_run"], None)
        found[status["held_run"]] = "held"
    if status["run"]:
        found.pop(status["run"], None)
        found[status["run"]] = "training" if status["training"] else "aligned"
    return found


def _served_by(status: dict[str, Any], run: str) -> list[str]:
    return [c["client"] for c in status["clients"] if c["model_run"] == run]
