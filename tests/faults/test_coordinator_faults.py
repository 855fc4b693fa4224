"""The coordinator dies, alone or with others; training does not stop for it."""

import time

import pytest
import torch

from tests.support.daemons.harness import Site
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, Trial, oracle_of


@pytest.mark.core
def test_6_training_does_not_stop_for_a_coordinator_that_is_killed(site: Site) -> None:
    with Trial(site, ["bank", "shop"], training=LONG, slow=True) as trial:
        trial.inject(Fault("kill", "coordinator", after=("bank", 12)))
        at = trial.last_step("bank")
        trial.wait_step("bank", at + 15)
        trial.inject(Fault("start", "coordinator"))
        trial.site.hurry()
        trial.finish()
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 2
        trial.check()


def test_6_killed_at_any_moment_it_goes_on_from_its_state(site: Site) -> None:
    """Four times in a row, also while members change; generations only ever rise."""
    with Trial(site, slow=True) as trial:
        trial.inject(
            Fault("kill", "shop", after=("shop", 12), then_wait_s=1.0),
            Fault("kill", "coordinator"),
            Fault("start", "coordinator"),
            Fault("start", "shop"),
            Fault("kill", "coordinator"),
            Fault("start", "coordinator"),
        )
        trial.wait_back("shop")
        trial.inject(Fault("kill", "coordinator"), Fault("start", "coordinator"))
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_7_coordinator_and_client_killed_together(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        trial.inject(
            Fault("kill", "coordinator", after=("shop", 12)),
            Fault("kill", "shop"),
        )
        said = "the coordinator, which would have to change the members, is out of reach"
        trial.clients["bank"].wait_for(said, 15)
        stuck = trial.last_step("bank")
        time.sleep(0.5)
        assert trial.last_step("bank") == stuck, "nobody may change the members alone"
        trial.inject(Fault("start", "coordinator"))
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")


def test_7_without_a_coordinator_they_give_up_after_a_time(site: Site) -> None:
    with Trial(site, client={"coordinator_timeout_s": 7.0}, slow=True) as trial:
        trial.inject(
            Fault("kill", "coordinator", after=("shop", 12)),
            Fault("kill", "shop"),
        )
        for name in ("bank", "telco"):
            assert trial.clients[name].wait_exit(30) == 7
            assert "the coordinator has been out of reach" in trial.clients[name].stderr


@pytest.mark.core
def test_8_all_killed_at_once_and_restarted(site: Site) -> None:
    """It goes on from a common checkpoint, and ends as if nothing had happened."""
    with Trial(site, training=LONG, slow=True) as trial:
        trial.wait_step("bank", 12)
        victims = ["coordinator", *trial.roster]
        trial.inject(*(Fault("kill", name) for name in victims))
        trial.site.hurry()
        trial.inject(*(Fault("start", name) for name in victims))
        trial.finish()
        assert [trial.generations(name) for name in trial.roster] == [[1, 2]] * 3
        oracle = trial.check()
    plain = oracle_of(site)
    plain.oracle.run()
    expected, found = plain.parameters(), oracle.parameters()
    for name in trial.roster:
        assert all(torch.equal(found[name][key], expected[name][key]) for key in expected[name])
