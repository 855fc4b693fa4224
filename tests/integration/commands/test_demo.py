"""The commands that run a whole federation: what they print, what they leave, how they fail."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.daemons.harness import Process, Site, eventually

NAMES = ["bank", "shop", "telco", "clinic"]
PROMISED = {
    "clients",
    "pids",
    "steps",
    "seconds",
    "wire_bytes",
    "test_accuracy",
    "accuracy_by_num_blocks",
    "accuracy_by_subset",
}


@pytest.fixture(scope="module")
def demo(shared_site: Site) -> tuple[dict[str, Any], dict[str, int], Path]:
    """Run the demo once; return its result, the processes seen meanwhile, and what it kept."""
    keep = shared_site.path / "kept"
    process = shared_site.run(
        "demo", "demo", "--format", "json", "--epochs", "15", "--keep", str(keep)
    )
    seen = eventually(lambda: _children(process), "all daemons run")
    assert process.wait_exit(100) == 0
    (line,) = process.stdout.splitlines()
    return json.loads(line), seen, keep


@pytest.mark.core
def test_the_demo_prints_one_object_with_the_promised_keys(
    demo: tuple[dict[str, Any], dict[str, int], Path],
) -> None:
    result, _, _ = demo
    assert result.keys() >= PROMISED
    assert result["clients"] == NAMES
    assert result["steps"] > 0
    assert result["seconds"] > 0
    assert result["wire_bytes"] > 0
    assert 0.5 < result["test_accuracy"] <= 1
    assert set(result["accuracy_by_num_blocks"]) == {"1", "2", "3", "4"}
    subsets = [",".join(c) for num in range(1, 5) for c in combinations(NAMES, num)]
    assert list(result["accuracy_by_subset"]) == subsets
    for entries in (result["accuracy_by_num_blocks"], result["accuracy_by_subset"]):
        for entry in entries.values():
            assert entry.keys() == {"accuracy", "num_samples"}
            assert 0 <= entry["accuracy"] <= 1
            assert entry["num_samples"] > 0
    alone = [result["accuracy_by_subset"][name]["accuracy"] for name in NAMES]
    assert result["accuracy_by_subset"][",".join(NAMES)]["accuracy"] > max(alone)


@pytest.mark.core
def test_the_demo_runs_separate_processes(
    demo: tuple[dict[str, Any], dict[str, int], Path],
) -> None:
    result, seen, _ = demo
    pids = {"coordinator": result["pids"]["coordinator"], **result["pids"]["clients"]}
    assert pids == seen
    assert len(set(pids.values())) == 5
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)], "left behind"


@pytest.mark.core
def test_the_demo_keeps_configs_logs_and_models(
    demo: tuple[dict[str, Any], dict[str, int], Path], shared_site: Site
) -> None:
    _, _, keep = demo
    for name in [*NAMES, "coordinator"]:
        assert (keep / f"{name}.yaml").read_text()
        assert (keep / f"{name}.log").read_text()
    for name in NAMES:
        assert (keep / f"{name}-state" / "model" / "model.safetensors").stat().st_size
    again = shared_site.run("again", "demo", "--keep", str(keep))
    assert again.wait_exit() == 2
    (line,) = again.stderr.splitlines()
    assert "is not empty" in line


def test_the_same_seed_gives_the_same_accuracies(site: Site) -> None:
    results = []
    for _ in range(2):
        process = site.run(
            "demo", "demo", "--format", "json", "--clients", "2", "--epochs", "2", "--seed", "11"
        )
        assert process.wait_exit() == 0
        result = json.loads(process.stdout)
        results.append({key: result[key] for key in PROMISED if "accuracy" in key})
    assert results[0] == results[1]


@pytest.mark.timeout(420)
def test_the_step_benchmark_prints_the_promised_keys(site: Site) -> None:
    """In so many steps that a frame still under way at the end is less than what frames add."""
    process = site.run(
        "bench",
        *("bench", "step", "--steps", "1000", "--repeats", "1", "--clients", "2"),
        *("--format", "json"),
    )
    assert process.wait_exit(400) == 0
    (line,) = process.stdout.splitlines()
    result = json.loads(line)
    assert result.keys() >= {
        "federation_step_ms",
        "oracle_step_ms",
        "ratio",
        "wire_bytes_per_step",
        "payload_bytes_per_step",
        "wire_ratio",
        "client_rss_mb_max",
        "tls",
    }
    assert result["payload_bytes_per_step"] == 2 * 1 * 128 * 128 * 4 * 2
    assert result["federation_step_ms"] > 0
    assert result["ratio"] > 0
    assert 1.0 <= result["wire_ratio"] < 1.2
    assert result["tls"] is False


@pytest.mark.timeout(300)
def test_the_recovery_benchmark_prints_the_promised_keys(site: Site) -> None:
    process = site.run(
        "bench",
        *("bench", "recover", "--repeats", "1", "--clients", "2", "--steps", "50"),
        *("--deadline", "1", "--format", "json"),
    )
    assert process.wait_exit(280) == 0, process.stderr
    (line,) = process.stdout.splitlines()
    result = json.loads(line)
    for name in ("crash_s", "hang_s", "rejoin_s", "checkpoint_ratio", "checkpoint_cpu_ratio"):
        assert result[f"{name}_each"] == [result[name]]
        assert result[name] > 0
    for name, aim in (("crash_s", 2.0), ("hang_s", 3.0), ("checkpoint_ratio", 1.05)):
        assert result[f"{name}_aim"] == aim
        assert result[f"{name}_is"] == ("met" if result[name] <= aim else "missed")
    assert result["hang_s"] > result["hang_deadline_s"] == 1.0
    assert result["rejoin_s"] > result["rejoin_start_s"] > 0
    assert result["checkpoint_every"] == 200
    assert result["tls"] is False


def _children(process: Process) -> dict[str, int] | None:
    """The daemons that the demo has announced, once all are alive as children of it."""
    announced = {
        name: int(pid) for name, pid in re.findall(r"^(\w+) pid (\d+)", process.stderr, re.M)
    }
    if len(announced) < 5:
        assert process.alive, process.stderr
        return None
    children = {child.pid for child in psutil.Process(process.pid).children()}
    assert set(announced.values()) <= children
    return announced
