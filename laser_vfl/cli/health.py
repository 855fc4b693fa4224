"""`health`: whether the daemon of a configuration serves, for a supervisor that asks often."""

import json
from pathlib import Path

from laser_vfl.cli.own_daemon import own_daemon
from laser_vfl.core.errors import NotReady
from laser_vfl.remote.health import SERVING, health_of


def run_health(path: Path, *, as_json: bool) -> None:
    """Ask the daemon at its `listen`, with its own certificate; raises unless it serves."""
    daemon = own_daemon(path)
    address = daemon.listening()
    status = health_of(address, daemon.access)
    if as_json:
        print(json.dumps({"address": address, "status": status}))
    if status != SERVING:
        raise NotReady(f"{address} says {status}", hint="it is starting or stopping; see its log")
    if not as_json:
        print(status)
