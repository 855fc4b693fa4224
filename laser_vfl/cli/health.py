"""`health`: whether the daemon of a configuration serves, for a supervisor that asks often."""

import json
import sys
from pathlib import Path

from laser_vfl.cli.own_daemon import own_daemon
from laser_vfl.core.errors import ConfigError, IdentityError, NotReady
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


def run_alive(path: Path, *, as_json: bool) -> None:
    """Raise only if the daemon does not answer, for a supervisor that would start it again.

    That mends neither a certificate nor a configuration, and breaks off a run that goes on.
    """
    try:
        run_health(path, as_json=as_json)
    except NotReady as reason:
        print(f"alive: {reason}", file=sys.stderr)
    except (ConfigError, IdentityError) as reason:
        print(f"cannot tell, so taken for alive: {reason}", file=sys.stderr)
