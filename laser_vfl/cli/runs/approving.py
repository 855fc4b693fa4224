"""`runs approve`, `reject` and `cancel`: an operator decides whether the next run takes place."""

import json
from pathlib import Path

from laser_vfl.cli.retrain import RunRequester, asked_coordinator
from laser_vfl.remote.operations import approve_run, cancel_run, reject_run

Files = tuple[Path | None, Path | None, Path | None]


def run_approve(
    client: str,
    coordinator: str | None,
    config: Path | None,
    seed: int | None,
    timeout: str,
    files: Files,
    *,
    as_json: bool,
) -> None:
    """Let a client's run start, and print its id and seed when it has."""
    requester = RunRequester(coordinator, config, files, timeout)
    requester.ask(
        lambda address, access: approve_run(address, access, client, seed), as_json=as_json
    )


def run_reject(
    client: str, coordinator: str | None, config: Path | None, files: Files, *, as_json: bool
) -> None:
    """Tell a client that its run does not start."""
    address, access, _ = asked_coordinator(coordinator, config, files)
    reject_run(address, access, client)
    if as_json:
        print(json.dumps({"client": client, "state": "rejected"}))
    else:
        print(f"the run that {client} asks for is rejected")


def run_cancel(
    coordinator: str | None, config: Path | None, files: Files, *, as_json: bool
) -> None:
    """Take back the next run, also while it is aligned."""
    address, access, _ = asked_coordinator(coordinator, config, files)
    run = cancel_run(address, access)
    if as_json:
        print(json.dumps({"run": run or None, "state": "cancelled"}))
    else:
        print(f"run {run} is cancelled" if run else "the run that was asked for is cancelled")
