"""A member that attacks a run: it is left out, and the others' models are the oracle's."""

import psutil
import pytest

from tests.support.attacks.attack_results import Results
from tests.support.daemons.harness import Site
from tests.support.trials.trial import Trial

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
CORE = "1e30 in a frame"
TRAINING = {"epochs": 8, "step_timeout_s": 8.0}
"""Long enough to be attacked twice; and nobody is lost whose first step takes seconds."""

EARLY_STEP = 10
MOST_GROWTH = 20e6


def hostile(habit: str) -> dict[str, tuple[str, ...]]:
    """Shop, which stands between the others in the roster, has a habit."""
    return {"shop": ("tests.support.attacks.hostile_member", habit)}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.core] if n == CORE else []) for n in HABITS],
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
            trial.clients[client].wait_for_served()
        for process in (trial.coordinator, *(trial.clients[client] for client in HONEST)):
            assert "Traceback" not in process.stderr
            assert "internal error" not in process.stderr
        for client in HONEST:
            assert f"lost {client}" not in trial.coordinator.stderr
        trial.check(*HONEST)
        results.note(name, "left out")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("habit", ["heartbeats", "streams"])
def test_who_floods_the_others_does_not_keep_them_from_training(
    habit: str, site: Site, results: Results
) -> None:
    programs = {"shop": ("tests.support.attacks.flooding_member", habit)}
    training = {"epochs": 8, "step_timeout_s": 30.0}
    with Trial(site, programs=programs, training=training) as trial:
        trial.clients["shop"].wait_for("floods")
        trial.finish(*HONEST, within_s=200.0)
        for client in HONEST:
            assert f"lost {client}" not in trial.coordinator.stderr
            assert "too many of these calls" not in trial.clients[client].stderr
        assert "Traceback" not in site.report()
        trial.check(*HONEST)
        results.note(f"{habit} without end", "the others train on")


@pytest.mark.timeout(400)
def test_who_pretends_to_wait_is_left_out(site: Site, results: Results) -> None:
    """On the code before, the run stands still for ever: who waits was never looked at."""
    programs = {"shop": ("tests.support.attacks.lying_member", "idle")}
    training = {"epochs": 4, "step_timeout_s": 8.0}
    with Trial(site, programs=programs, training=training) as trial:
        trial.clients["shop"].wait_for("sends nothing")
        trial.coordinator.wait_for("lost shop")
        trial.finish(*HONEST, within_s=200.0)
        for client in HONEST:
            assert f"lost {client}" not in trial.coordinator.stderr
        assert "Traceback" not in site.report()
        trial.check(*HONEST)
        results.note("pretends to wait", "left out")


def test_who_comes_and_goes_is_taken_in_ever_more_rarely(site: Site, results: Results) -> None:
    """On the code before, it has the others stop several times a second until the run ends."""
    programs = {"shop": ("tests.support.attacks.lying_member", "restless")}
    with Trial(site, programs=programs, training={"step_timeout_s": 60.0}, slow=True) as trial:
        trial.coordinator.wait_for("shop comes and goes; it may join again in 3.2 s")
        trial.site.hurry()
        trial.finish(*HONEST)
        for client in HONEST:
            assert f"lost {client}" not in trial.coordinator.stderr
        assert "Traceback" not in site.report()
        assert trial.coordinator.stderr.count("shop joins at step") < 15
        trial.check(*HONEST)
        results.note("comes and goes", "waits twice as long each time")


def test_frames_of_an_earlier_run_are_dropped(site: Site, results: Results) -> None:
    training = {"epochs": 2, "step_timeout_s": 60.0}
    with Trial(site, programs=hostile("replay"), training=training) as trial:
        trial.finish()
        first = trial.clients[HONEST[0]].wait_for_served()
        retrain = ["retrain", "--coordinator", site.address, "--seed", "3", *site.tls_options]
        assert site.run("retrain", *retrain).wait_exit() == 0
        for client in trial.clients.values():
            client.wait_for_served(other_than=first)
        assert "attacks" in trial.clients["shop"].stderr
        for name in HONEST:
            assert trial.dropped(name)["other run"] > 10
            assert trial.generations(name) == [1]
        assert "Traceback" not in site.report()
        trial.check()
        results.note("replayed frames", "dropped")


def _rss(trial: Trial, name: str) -> int:
    return int(psutil.Process(trial.clients[name].pid).memory_info().rss)
