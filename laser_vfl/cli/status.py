"""`status`: how a federation or one client is doing, as tables for a person or as JSON."""

import json
import shlex
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.own_daemon import own_daemon
from laser_vfl.cli.predict.predict_summary import GUESSED
from laser_vfl.cli.terminal_tables import add_row, new_table, say
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.work_progress import duration_text
from laser_vfl.core.errors import ConfigError
from laser_vfl.remote.calls import client_access, coordinator_access
from laser_vfl.remote.operations import client_status, coordinator_status

WORK = {"alignment": "aligning", "tables": "reading tables"}
"""Long work before a run, and what it is called."""

NUM_LETTERS = 8
"""Enough of a run to tell it from others in a table."""


def run_status(
    coordinator: str | None,
    client: str | None,
    config: Path | None,
    files: tuple[Path | None, Path | None, Path | None],
    *,
    as_json: bool,
) -> None:
    """Ask one daemon and print what it says."""
    if sum(value is not None for value in (coordinator, client, config)) != 1:
        raise ConfigError(
            "status is of one coordinator or one client",
            hint="give --config of a daemon here, --coordinator or --client",
        )
    metrics = None
    if config:
        daemon = own_daemon(config)
        metrics = daemon.metrics
        address, access = daemon.address, daemon.access
        is_client = isinstance(daemon.config, ClientConfig)
    elif client:
        address, access, is_client = client, client_access(client, *files), True
    else:
        assert coordinator is not None
        address, access = coordinator, coordinator_access(coordinator, *files)
        is_client = False
    status = client_status(address, access) if is_client else coordinator_status(address, access)
    status["metrics"] = metrics
    if as_json:
        print(json.dumps(status, ensure_ascii=False))
    elif is_client:
        print_client(status, Console(), config)
    else:
        print_federation(status, Console(), asked_as(config, coordinator))
    if metrics and not as_json:
        say(Console(), f"metrics at http://{metrics}/metrics")


def asked_as(config: Path | None, coordinator: str | None) -> str:
    """Return the option of a command that asks the same coordinator."""
    if config is not None:
        return f"--config {shlex.quote(str(config))}"
    return f"--coordinator {shlex.quote(coordinator or 'HOST:PORT')}"


def print_federation(
    status: dict[str, Any], console: Console, asked: str = "--config coordinator.yaml"
) -> None:
    """Print the status of a coordinator; `asked` is the option that says which."""
    say(console, f"federation {status['federation']}, release {status['release']}")
    if status["training"]:
        say(console, f"training run {status['run']} with seed {status['seed']}")
        if status["waiting_for"]:
            say(console, f"training waits for {', '.join(status['waiting_for'])}")
    elif under_way := work_lines(status):
        for line in under_way:
            say(console, line)
    elif status["wanted"]:
        say(console, next_run_line(status["waiting_for"]))
    else:
        say(console, "no run is wanted or under way")
    for client in status["requests"]:
        how = f"it starts after `laser-vfl runs approve {client} {asked}`"
        say(console, f"{client} asks for a run; {how}")
    if status["next_run_at"]:
        say(console, f"next run by the schedule at {local_time(status['next_run_at'])}")
    if status["last_run"]:
        say(console, f"last run {status['last_run']}: {status['last_outcome']}")
    if status["held_run"]:
        who = ", ".join(status["held_by"])
        say(console, f"run {status['held_run']} is not served yet; held back by {who}")
    table = new_table("client", "up", "doing", ">step", "model", "head", ">has block")
    for client in status["clients"]:
        steps = f"{client['next_step']} of {client['num_steps']}" if client["num_steps"] else ""
        add_row(
            table,
            client["client"],
            "yes" if client["up"] else "no",
            _doing(client),
            steps,
            (client["model_run"] or "")[:NUM_LETTERS],
            "yes" if client["has_head"] else "",
            _share(client["num_samples"], status["num_samples"]),
        )
    console.print(table)
    for line in problems(status):
        say(console, line)
    if status["num_samples"]:
        say(console, f"has block: of {status['num_samples']} training samples of the last run")
    if status["generation"]:
        _print_members(status, console)


def work_lines(status: dict[str, Any]) -> list[str]:
    """Return what the clients align or read before the next run, and how far that is."""
    lines = []
    for work, words in WORK.items():
        of_clients = [c["work"] for c in status["clients"] if c["work"] and c["up"]]
        parts = [part for part in of_clients if part["work"] == work]
        if parts:
            lines.append(work_line(parts, words))
    return lines


def work_line(parts: list[dict[str, Any]], words: str) -> str:
    """Return how far the same work is at some clients together, and how long the slowest needs."""
    share = sum(part["done"] for part in parts) / max(sum(part["total"] for part in parts), 1)
    left_s = max(part["left_s"] for part in parts)
    return f"{words}: {share:.0%} done, {duration_text(left_s)} left"


def _doing(client: dict[str, Any]) -> str:
    """Return what a client does, and how far it is with that."""
    if not client["up"]:
        return ""
    work = client["work"]
    if not work or work["work"] not in WORK:
        return str(client["activity"])
    return f"{WORK[work['work']]} {work['done'] / max(work['total'], 1):.0%}"


def problems(status: dict[str, Any]) -> list[str]:
    """Return a line for each client that cannot take part in the next run."""
    lines = []
    for client in status["clients"]:
        if client["problem"]:
            wait_s = client["held_back_s"]
            again = f"; it is called again in {wait_s:.0f} s" if wait_s else ""
            lines.append(f"{client['client']} cannot take part: {client['problem']}{again}")
    return lines


def _print_members(status: dict[str, Any], console: Console) -> None:
    """Print who takes part in the run under way, or did in the last one, and who has left it."""
    which = "the run under way" if status["training"] else "the last run"
    say(console, f"{which}: generation {status['generation']}, {_checkpoint(status)}")
    table = new_table("client", "member", ">steps redone", ">frames dropped", ">offences seen")
    for client in status["clients"]:
        is_member = client["client"] in status["members"]
        names = ("num_redone", "num_dropped", "num_offences")
        counts = [client[name] if client["up"] else "" for name in names]
        add_row(table, client["client"], "yes" if is_member else "no", *counts)
    console.print(table)
    for departure in status["departures"]:
        say(
            console,
            f"{local_time(departure['at'])} lost {departure['client']} "
            f"(generation {departure['generation']}): {departure['reason']}",
        )


def _checkpoint(status: dict[str, Any]) -> str:
    step = status["checkpoint"]
    return f"everybody has the checkpoint of step {step}" if step else "no checkpoint yet"


def print_client(status: dict[str, Any], console: Console, config: Path | None = None) -> None:
    """Print the status of a client."""
    about = f"{status['client']} of federation {status['federation']}, release {status['release']}"
    say(console, f"{about}: {status['activity']}")
    if work := status["work"]:
        say(console, work_line([work], WORK.get(work["work"], work["work"])))
    if status["training_run"]:
        done = f"step {status['next_step']} of {status['num_steps']}"
        say(console, f"training run {status['training_run']}: {done}")
    if status["generation"]:
        which = "" if status["training_run"] else "the last run: "
        dropped = status["frames_dropped"]
        reasons = ", ".join(f"{num} {reason}" for reason, num in dropped.items())
        say(
            console,
            f"{which}generation {status['generation']} with {', '.join(status['members'])}; "
            f"{status['num_redone']} steps redone, {sum(dropped.values())} frames dropped"
            + (f" ({reasons})" if reasons else ""),
        )
        if status["offences"]:
            told = ", ".join(f"{reason} ({num})" for reason, num in status["offences"].items())
            say(console, f"peers broke the contract: {told}")
    model = status["model"]
    if model is None:
        say(console, "no model yet")
    else:
        trained = local_time(model["trained_at"], "%Y-%m-%d %H:%M")
        say(console, f"model of run {model['run']}, {trained}, {model['num_steps']} steps")
    for line in held_lines(status, config):
        say(console, line)
    say(
        console,
        f"{status['num_held']} samples held; {status['num_requests']} requests, "
        f"{status['num_predicted']} predictions, {status['num_sample_errors']} errors",
    )
    if status["serve_problem"]:
        say(console, f"data.serve: {status['serve_problem']}")
    if model is not None and model["task"]:
        _print_scores(model, status["subsets"], console)
    if status["peers"]:
        _print_peers(status["peers"], console)


def next_run_line(waiting_for: list[str]) -> str:
    """Return what to say of a run that is asked for and has not begun."""
    names = ", ".join(waiting_for)
    return f"the next run {f'waits for {names}' if names else 'starts now'}"


def held_lines(status: dict[str, Any], config: Path | None = None) -> list[str]:
    """Return what to say of a model that a client does not serve yet."""
    file = shlex.quote(str(config)) if config else "FILE"
    if status["next_model"] is None:
        return []
    run = status["next_model"]["run"]
    if not status["next_is_published"]:
        how = f"`laser-vfl runs publish {run} --config {file}`"
        return [f"run {run} is held back here; {how} publishes it"]
    who = ", ".join(status["held_by"]) or "the coordinator to say that all have published it"
    return [f"run {run} is published here, and not served yet: it waits for {who}"]


def _print_scores(model: dict[str, Any], counts: dict[str, int], console: Console) -> None:
    table = new_table("blocks", f">{model['score_name'] or 'score'}", ">predictions")
    subsets = dict.fromkeys([*model["scores"], *counts])
    for blocks in sorted(subsets, key=lambda blocks: blocks.count(",")):
        score, count = _score(model["scores"].get(blocks)), counts.get(blocks, 0)
        add_row(table, blocks or GUESSED, score, count)
    add_row(
        table,
        "whatever each sample has",
        _score(model["score"]),
        sum(counts.values()),
        style="bold",
    )
    console.print(table)


def _print_peers(peers: list[dict[str, Any]], console: Console) -> None:
    table = new_table(
        "peer", "available", ">usual ms", ">had block", ">refused us", ">asked us", ">refused"
    )
    for peer in peers:
        add_row(
            table,
            peer["client"],
            "yes" if peer["available"] else "no",
            "" if peer["usual_s"] is None else f"{peer['usual_s'] * 1e3:.1f}",
            _share(peer["num_available"], peer["num_wanted"]),
            peer["num_limited"],
            peer["num_requests"],
            peer["num_refused"],
        )
    console.print(table)
    for peer in peers:
        if peer["problem"]:
            say(console, f"{peer['client']}: {peer['problem']}")


def local_time(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a Unix time as a person here reads it."""
    try:
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):  # others may say anything
        return "at some time"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _score(score: float | None) -> str:
    return "unknown" if score is None else f"{score:.3f}"
