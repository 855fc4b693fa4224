"""A federation far apart and on slow lines: how long a step takes, and a member lost meanwhile."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from compose_trial import CLIENTS, Trial, eventually
from engine import Engine
from throttle import CannotThrottle
from throttled import MAX_RATIO, MBIT_PER_S, RTT_MS, measure, slow_network, write_override

from laser_vfl.cli.plan.plan_command import PlanOptions, make_plan

pytestmark = pytest.mark.timeout(1500)

RECOVER_S = 120.0
NUM_SAMPLES, P_MISSING = 1347, 0.3
"""Of the digits, as deploy/digits/make-data cuts them."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where coordinator.yaml of the federation is."""
    return tmp_path_factory.mktemp("throttled")


@pytest.fixture(scope="module")
def trial(built: Engine, directory: Path) -> Iterator[Trial]:
    with Trial(built, "laser-vfl-test-throttled", write_override(directory)) as trial:
        yield trial


@pytest.fixture(scope="module")
def measured(trial: Trial) -> dict[str, Any]:
    """The figures of a run on the slow network; `figures` in throttled.py has the keys."""
    try:
        return measure(trial)
    except CannotThrottle as reason:
        pytest.skip(str(reason))


def test_a_step_takes_little_more_than_it_must(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{json.dumps(measured)}")
    assert RTT_MS <= measured["found_rtt_ms"] < 2 * RTT_MS
    assert measured["ratio"] <= MAX_RATIO, measured


def test_what_was_planned_is_what_happens(
    measured: dict[str, Any], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With as much computing in a step as on the fast network; the samples are the trial's."""
    plan = make_plan(
        PlanOptions(
            config=directory / "coordinator.yaml",
            bandwidth=f"{MBIT_PER_S:g}mbit",
            rtt=f"{RTT_MS:g}ms",
            samples=NUM_SAMPLES,
            p_missing=str(P_MISSING),
            compute=f"{measured['compute_ms']}ms",
        )
    )
    planned_ms = plan["step"]["seconds"] * 1e3
    sent = max(client["step"]["tcp_up"] for client in plan["clients"])
    with capsys.disabled():
        print(json.dumps({"planned_ms": round(planned_ms, 2), "planned_bytes": sent}))
    assert sent == pytest.approx(measured["bytes_per_step"], rel=0.05)
    assert planned_ms == pytest.approx(measured["step_ms"], rel=0.2)


def test_a_member_killed_in_training_is_done_without_and_comes_back(trial: Trial) -> None:
    """It goes on with the run that was measured; the network is slow if it can be."""
    eventually(lambda: trial.status()["training"], "training is under way", RECOVER_S)
    others = [name for name in CLIENTS if name != "clinic"]
    with ExitStack() as stack:
        with suppress(CannotThrottle):
            stack.enter_context(slow_network(trial))
        clinic = trial.container("clinic")
        clinic.kill()
        eventually(lambda: trial.status()["members"] == others, "the others go on", RECOVER_S)
        at = _least_step(trial, others)
        eventually(lambda: _least_step(trial, others) > at, "without it", RECOVER_S)
        clinic.start()

        def is_back() -> bool:
            status = trial.status()
            assert status["training"], "the run was over before clinic was back"
            return bool(status["members"] == list(CLIENTS))

        eventually(is_back, "clinic is back in the run", RECOVER_S)
        at = _least_step(trial, CLIENTS)
        eventually(lambda: _least_step(trial, CLIENTS) > at, "with it", RECOVER_S)
    status = trial.status()
    assert [one["client"] for one in status["departures"]] == ["clinic"]
    assert status["members"] == list(CLIENTS)


def _least_step(trial: Trial, names: Sequence[str]) -> int:
    """Return the step that all of these have come to."""
    clients = {client["client"]: client for client in trial.status()["clients"]}
    return min(clients[name]["next_step"] or 0 for name in names)
