"""Every script under benchmarks/ runs, in a reduced form, and prints what its README says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
ALL_SHAPES = 9


def test_no_script_is_left_out() -> None:
    scripts = {path.name for path in BENCHMARKS.glob("*.py")}
    tested = Path(__file__).read_text()
    assert scripts
    assert all(f'"{name}"' in tested for name in scripts), scripts


def test_label_leakage() -> None:
    found = _json("label_leakage.py", "--seeds", "1", "--epochs", "1")
    assert (found["seeds"], found["epochs"]) == (1, 1)
    assert len(found["results"]) == 3
    for protections in found["results"].values():
        assert set(protections) == {"none", "masked gradients", "noise 0.5", "noise 2"}
        for areas in protections.values():
            assert set(areas) == {"norm_auc", "direction_auc", "prediction_auc"}
            assert all(0.0 <= area <= 1.0 for area in areas.values())
        # The attack that the document warns of works from the first epoch on.
        assert protections["none"]["direction_auc"] > 0.95


def test_label_privacy() -> None:
    options = ("--seeds", "1", "--epochs", "2", "--data", "rare label", "--epsilons", "1")
    found = _json("label_privacy.py", *options, "--losses", "none")
    assert (found["seeds"], found["epochs"]) == (1, 2)
    attacks = found["attacks"]["rare label"]
    assert set(attacks) == {"none", "1"}
    assert attacks["none"]["direction_auc"] > 0.95
    assert attacks["1"]["noisy_label_auc"] > 0.95, "gradients still tell which label was told"
    # About 240 labels are guessed, so the area is uncertain by 0.03.
    assert attacks["1"]["canary_auc"] < attacks["1"]["bound"] + 0.12
    assert set(found["losses"]["rare label"]["1"]) == {"forward", "none"}


def test_flood_cost() -> None:
    found = _json("flood_cost.py", "--seconds", "1", "--repeats", "1")
    assert set(found["habits"]) == {"none", "heartbeats", "streams"}
    for figures in found["habits"].values():
        assert figures["client_cpu"] > 0
        assert figures["step_cpu_ms"] > 0
    assert found["habits"]["none"]["beyond_steps"] == 0


def test_grouping() -> None:
    found = _json("grouping.py", "--clients", "3", "--points", "1000", "--repeats", "2")
    assert (found["clients"], found["points_per_client"]) == (3, 1000)
    assert found["seconds"] >= 0
    assert found["peak_mb"] > 0


def test_transport_shapes() -> None:
    """The oracle, and the shape that clients use."""
    oracle, threaded = _transport_rows("--shapes", "oracle", "aio-thread")
    assert (oracle["shape"], threaded["shape"]) == ("oracle", "aio-thread")
    assert oracle["ratio"] == 1.0
    assert threaded["wire_bytes"] > 0


def test_all_transport_shapes() -> None:
    assert len({row["shape"] for row in _transport_rows()}) == ALL_SHAPES


def test_throttled_containers_starts() -> None:
    """It has no form without containers: all that it measures is what their slow network costs.

    It holds back packets between network namespaces, which takes root, and compares steps with and
    without. `tests/containers/test_throttled.py` calls the same `measure` where there is an engine.
    """
    assert "Time a training step" in _run("throttled_containers.py", "--help")


def test_throttled_containers_says_what_it_needs(tmp_path: Path) -> None:
    """With an engine that does not answer, it ends with one line."""
    bring_up = tmp_path / "bring-up"
    bring_up.write_text(
        '#!/bin/sh\n[ "$2" = --env ] && exit\necho there is no engine here >&2\nexit 3\n'
    )
    bring_up.chmod(0o700)
    environment = {**os.environ, "LASER_VFL_CONTAINERS_UP": str(bring_up)}
    environment |= {"LASER_VFL_CONTAINERS_DIR": str(tmp_path), "DOCKER_HOST": "unix:///no/engine"}
    done = _done("throttled_containers.py", environment=environment)
    assert done.returncode == 1
    assert done.stderr == "bring-up failed: there is no engine here\n"


def _transport_rows(*options: str) -> list[dict[str, Any]]:
    few = ("--steps", "10", "--warmup", "1", "--repeats", "1", "--format", "json")
    rows: list[dict[str, Any]] = _json("transport_shapes.py", *few, *options)["rows"]
    assert all(row["step_ms"] > 0 for row in rows)
    return rows


def _json(script: str, *options: str) -> Any:
    return json.loads(_run(script, *options))


def _run(script: str, *options: str) -> str:
    """Return what a script prints; it has to end with 0."""
    done = _done(script, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _done(
    script: str, *options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )
