"""What happened to the members of a run can be read afterwards: in the status and the metrics."""

from typing import Any

from tests.support.daemons.harness import Site, eventually
from tests.support.trials.faults import Fault
from tests.support.trials.trial import Trial

COMMON = {"time", "run", "event"}
FIELDS = {
    "view": {"generation", "members", "next_step"},
    "stopped": {"generation", "next_step"},
    "excluded": {"generation", "reason"},
    "left": {"generation", "next_step"},
    "loaded": {"step"},
    "checkpoint": {"step"},
}


def test_the_story_of_a_run_is_told(site: Site) -> None:
    with Trial(site, training={"step_timeout_s": 6.0}, slow=True) as trial:
        trial.inject(Fault("stop", "shop", after=("shop", 12)))
        trial.wait_generation("bank", 2)
        trial.inject(Fault("continue", "shop"))
        trial.wait_generation("shop", 3)
        status = trial.status()
        assert status["training"]
        assert (status["generation"], status["members"]) == (3, trial.roster)
        assert status["checkpoint"] % 5 == 0
        trial.inject(Fault("term", "telco", after=("telco", trial.last_step("bank") + 5)))
        assert trial.clients["telco"].wait_exit() == 0
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "shop")
        run = _run(trial)

        eventually(lambda: trial.status()["run"] is None, "the run has ended")
        status = trial.status()
        assert (status["last_run"], status["last_outcome"]) == (run, "finished")
        assert (status["generation"], status["members"]) == (4, ["bank", "shop"])
        first, second = status["departures"]
        assert (first["client"], first["generation"]) == ("shop", 2)
        assert "silent" in first["reason"] or "one step" in first["reason"]
        assert (second["client"], second["generation"]) == ("telco", 4)
        assert second["reason"] == "it left"
        assert 0 < second["at"] - first["at"] < 60
        counts = {client["client"]: client["num_redone"] for client in status["clients"]}

    for name in trial.roster:
        lines = site.happenings(name)
        assert all(line.keys() == COMMON | FIELDS[line["event"]] for line in lines)
        assert {line["run"] for line in lines} == {run}
        times = [line["time"] for line in lines if line["event"] != "checkpoint"]
        assert times == sorted(times), "only checkpoints are noted by another thread"
    bank, shop, telco = (site.happenings(name) for name in trial.roster)
    views = _of(bank, "view")
    assert [view["generation"] for view in views] == [1, 2, 3, 4]
    assert [view["members"] for view in views] == [
        ["bank", "shop", "telco"],
        ["bank", "telco"],
        ["bank", "shop", "telco"],
        ["bank", "shop"],
    ]
    assert [line["generation"] for line in _of(bank, "stopped")] == [1, 2, 3]
    for stopped, view in zip(_of(bank, "stopped"), views[1:], strict=True):
        assert view["next_step"] == stopped["next_step"]
    assert [view["generation"] for view in _of(shop, "view")] == [1, 3, 4]
    [excluded] = _of(shop, "excluded")
    assert (excluded["generation"], excluded["reason"]) == (1, first["reason"])
    [left] = _of(telco, "left")
    assert (left["generation"], left["next_step"]) == (3, trial.last_step("telco") + 1)
    assert not _of(bank, "excluded") + _of(bank, "left") + _of(shop, "left")
    saved = [line["step"] for line in _of(bank, "checkpoint")]
    assert saved == sorted(saved)
    last = site.metrics("bank")[-1]
    assert saved[-1] == last["step"], "the last step has a checkpoint"
    assert last["steps_redone"] == counts["bank"] > 0


def _of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def _run(trial: Trial) -> str:
    return str(trial.site.metrics("bank")[-1]["run"])
