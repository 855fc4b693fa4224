"""Benchmarks of whole federations run in a small form, and print what their page says."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)


def test_start() -> None:
    found = _json("start", "--clients", "2", "--rows", "100", "--repeats", "1")
    assert (found["clients"], found["rows"], found["repeats"]) == (2, 100, 1)
    phases = ["coordinator_s", "ready_s", "registration_s", "alignment_s", "first_step_s"]
    assert all(found[phase] >= 0 for phase in phases)
    assert found["tables_s"] > 0
    # All phases but the start of the run, which follows the alignment at once.
    assert sum(found[phase] for phase in phases) <= found["total_s"] + 0.1
    assert 0 < found["ready_cpu_s"] <= found["first_step_cpu_s"]
    assert found["import_cpu_s"] > found["torch_cpu_s"] > 0
    assert found["rss_mb"] > 0


def test_scale() -> None:
    counts = ("--clients", "2", "--clients", "3")
    found = _json("scale", *counts, "--steps", "20", "--requests", "3")
    assert [point["clients"] for point in found["curve"]] == [2, 3]
    for point in found["curve"]:
        assert point["steps"] == 20
        names = ["ready_s", "step_ms", "client_cpu_ms", "rss_mb", "answer_ms", "open_files"]
        assert all(point[name] > 0 for name in names)
    assert {"step_exponent", "client_cpu_exponent", "answer_exponent"} < set(found)
    # A client has the same memory whoever else is there; what it has of a peer is small.
    assert found["rss_ratio"] < 1.1


def _json(name: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "laser_vfl", "bench", name, *options, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
