"""`laser-vfl bench wan` in a reduced form: real processes, a short line, a low score, few steps."""

import json
import subprocess
import sys

import pytest

RTT_MS = 10.0


@pytest.mark.timeout(600)
def test_all_ways_are_measured() -> None:
    options = ["--dataset", "digits", "--rtt", "10ms", "--target", "0.15", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "laser_vfl", "bench", "wan", *options, "--format", "json"],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["dataset"], found["target"], found["rtt_ms"]) == ("digits", 0.15, RTT_MS)
    assert found["line"]["rtt_ms"] >= RTT_MS
    published, recommended, pipelined = (
        found[way] for way in ("published", "recommended", "pipelined")
    )
    assert found["times_sooner"] == pytest.approx(
        published["seconds"] / recommended["seconds"], abs=0.02
    )
    for way in (published, recommended):
        assert way["settings"]["pipeline"] == 0
        assert way["step_ms"] >= RTT_MS
    assert published["settings"]["wire_precision"] == "float32"
    assert recommended["settings"]["wire_precision"] == "int4"
    assert pipelined["settings"]["pipeline"] > 0
    assert published["wire_bytes_per_step"] > 2 * pipelined["wire_bytes_per_step"]
    for way in (published, recommended, pipelined):
        assert way["best_accuracy"] >= 0.15
        assert 0 < way["steps"] <= way["num_steps"]
        assert way["limit_ms"] >= RTT_MS / (1 + way["settings"]["pipeline"])
        assert way["planned_ms"] > 0
