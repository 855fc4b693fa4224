"""`runs publish`: a client serves a run that it held back, once all others have published it."""

import json
import time
from pathlib import Path
from typing import Any

from laser_vfl.cli.option_parsers import parse_seconds
from laser_vfl.cli.own_daemon import own_client
from laser_vfl.remote.operations import client_status, publish_run

POLL_S = 0.2


def run_publish(run: str, config: Path, timeout: str, *, as_json: bool) -> None:
    """Publish a run, wait a little until it is served, and print what has come of it."""
    timeout_s = parse_seconds(timeout, "--timeout")
    daemon = own_client(config)
    publish_run(daemon.address, daemon.access, run)
    give_up_at = time.monotonic() + timeout_s
    while True:
        status = client_status(daemon.address, daemon.access)
        others = [name for name in status["held_by"] if name != status["client"]]
        if is_served(status, run) or others or time.monotonic() >= give_up_at:
            break
        time.sleep(min(POLL_S, max(0.0, give_up_at - time.monotonic())))
    state = "served" if is_served(status, run) else "published"
    if as_json:
        print(json.dumps({"run": run, "state": state, "held_by": others}))
    elif state == "served":
        print(f"run {run} is served")
    else:
        waits_for = ", ".join(others) or "the coordinator to say that all have"
        print(f"run {run} is published here, and not served yet: it waits for {waits_for}")


def is_served(status: dict[str, Any], run: str) -> bool:
    """Whether a client serves this run, by its status."""
    return status["model"] is not None and status["model"]["run"] == run
