"""A member that attacks a run: it is left out, and the others' models are the oracle's."""

import psutil
import pytest
from harness import Site
from results import Results
from trial import Trial

HONEST = ("bank", "telco")
HABITS = {
    "NaN in a frame": "nan",
    "Inf in a frame": "inf",
    "1e30 in a frame": "huge",
    "shape overflow in a frame": "overflow",
    "wrong dtype in a frame": "dtype",
    "short data in a frame": "short",
    "oversize frame": "oversize",
    "frames without end": "endless",
}
ALWAYS = ("1e30 in a frame",)
TRAINING = {"epochs": 8, "step_timeout_s": 8.0}
"""Long enough to be attacked twice; and nobody is lost whose first step takes seconds."""

EARLY_STEP = 10
MOST_GROWTH = 20e6


def hostile(habit: str) -> dict[str, tuple[str, ...]]:
    """Shop, which stands between the others in the roster, has a habit."""
    return {"shop": ("hostile_member", habit)}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name",
    [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.variant) for each in HABITS],
)
def test_who_attacks_a_run_is_left_out_of_it(name: str, site: Site, results: Results) -> None:
    with Trial(site, programs=hostile(HABITS[name]), training=TRAINING) as trial:
        trial.wait_step("bank", EARLY_STEP)
        before = {client: _rss(trial, client) for client in HONEST}
        trial.clients["shop"].wait_for("attacks")
        trial.coordinator.wait_for("lost shop")
        for client in HONEST:
            trial.wait_generation(client, 2)
            assert _rss(trial, client) < before[client] + MOST_GROWTH
        for client in HONEST:
            trial.clients[client].wait_for("serving the model of run")
        for process in (trial.coordinator, *(trial.clients[client] for client in HONEST)):
            assert "Traceback" not in process.stderr
            assert "internal error" not in process.stderr
        for client in HONEST:
            assert f"lost {client}" not in trial.coordinator.stderr
        trial.check(*HONEST)
        results.note(name, "left out")


def test_frames_of_an_earlier_run_are_dropped(site: Site, results: Results) -> None:
    training = {"epochs": 2, "step_timeout_s": 60.0}
    with Trial(site, programs=hostile("replay"), training=training) as trial:
        trial.finish()
        retrain = ["retrain", "--coordinator", site.address, "--seed", "3", *site.tls_options]
        assert site.run("retrain", *retrain).wait_exit() == 0
        for client in trial.clients.values():
            client.wait_for("serving the model of run", times=2)
        assert "attacks" in trial.clients["shop"].stderr
        for name in HONEST:
            assert trial.dropped(name)["other run"] > 10
            assert trial.generations(name) == [1]
        assert "Traceback" not in site.report()
        trial.check()
        results.note("replayed frames", "dropped")


def _rss(trial: Trial, name: str) -> int:
    return int(psutil.Process(trial.clients[name].pid).memory_info().rss)
