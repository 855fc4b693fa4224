"""Federations that wait for somebody who never comes, and dry runs of their alignment."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from laser_vfl.core.errors import LaserError
from laser_vfl.remote.operations import align, coordinator_status
from tests.support.daemons.harness import Process, Site, eventually

NOBODY = "nobody"
"""A client of the roster that never comes, so that no run begins."""

TIMEOUT_S = 30.0

Counts = dict[frozenset[str], int]
"""How many samples have a pattern of blocks."""


def dry_run(client: Process, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Have a daemon align, without the time that it takes to start a command."""
    return align(client.wait_predict(), client.access(), timeout_s)


def refused(client: Process, timeout_s: float = TIMEOUT_S) -> str:
    """Ask for a dry run that must fail; return what the caller is told."""
    with pytest.raises(LaserError) as error:
        dry_run(client, timeout_s)
    assert "did not answer" not in str(error.value), "the caller waits for an answer in vain"
    return str(error.value)


def refused_by_all(*clients: Process, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Ask several daemons at the same time for a dry run that must fail."""
    with ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(lambda client: refused(client, timeout_s), clients))


def counts(found: Mapping[str, Any], table: str) -> Counts:
    """Return the patterns of a table."""
    patterns = found["tables"][table]["patterns"]
    return {frozenset(p["blocks"]): p["num_samples"] for p in patterns}


def status(site: Site) -> dict[str, Any]:
    """What the coordinator says of the federation."""
    return coordinator_status(site.address, site.operator_access())


def wait_for_activity(site: Site, expected: Mapping[str, str]) -> None:
    """Wait until the coordinator says that these clients do this."""

    def is_so() -> bool:
        found = {c["client"]: c["activity"] for c in status(site)["clients"] if c["up"]}
        return all(found.get(name) == activity for name, activity in expected.items())

    eventually(is_so, f"the federation is {expected}", 30)


def history(site: Site) -> list[dict[str, Any]]:
    """The lines of the coordinator's history."""
    path = site.path / "coordinator-state" / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def no_tracebacks(site: Site) -> None:
    for process in site.processes:
        assert "Traceback" not in process.stderr, process.report()
