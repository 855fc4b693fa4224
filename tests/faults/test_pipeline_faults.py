"""Steps that begin before the last one is applied: what is dropped with them leaves no trace."""

import pytest
import torch

from tests.support.daemons.harness import Site, eventually
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, Trial, oracle_of

DEEP = {"pipeline": 3, "checkpoint_every": 7}


def test_one_is_killed_and_comes_back(site: Site) -> None:
    with Trial(site, training=DEEP, slow=True) as trial:
        for _ in range(2):
            trial.inject(Fault("kill", "shop", after=("shop", 16)))
            trial.wait_together("bank", "telco")
            trial.inject(Fault("start", "shop"))
            trial.wait_back("shop")
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_one_is_killed_when_some_have_its_frames_and_some_do_not(site: Site) -> None:
    with Trial(site, training=DEEP, proxied=["shop"], slow=True) as trial:
        trial.inject(Fault("black hole", "shop", after=("shop", 12)))
        eventually(lambda: trial.proxies["shop"].num_bytes_lost, "a frame is lost")
        trial.inject(Fault("kill", "shop"))
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")


def test_a_stream_that_is_cut_changes_nothing(site: Site) -> None:
    with Trial(site, training=LONG | DEEP, proxied=["shop"], slow=True) as trial:
        for step in (9, 16, 23):
            trial.inject(
                Fault("cut", "shop", after=("shop", step), then_wait_s=0.3), Fault("heal", "shop")
            )
        trial.site.hurry()
        trial.finish()
        assert trial.generations("bank") == [1]
        trial.check()


def test_one_without_labels_is_stopped_for_a_while(site: Site) -> None:
    with Trial(site, training=DEEP, labels={"shop": None}, slow=True) as trial:
        trial.inject(Fault("stop", "shop", after=("shop", 12)))
        trial.wait_together("bank", "telco")
        trial.inject(Fault("continue", "shop"))
        trial.wait_together("bank", "shop", "telco")
        trial.site.hurry()
        trial.finish()
        trial.check()


@pytest.mark.core
def test_all_are_killed_and_the_result_is_that_of_a_run_that_never_stopped(site: Site) -> None:
    """Nothing is under way at a checkpoint, so that going on from it repeats what was lost."""
    with Trial(site, training=LONG | DEEP, slow=True) as trial:
        trial.wait_step("shop", 16)
        trial.inject(*(Fault("kill", name) for name in trial.roster))
        trial.inject(*(Fault("start", name) for name in trial.roster))
        trial.wait_back("shop")
        trial.site.hurry()
        trial.finish()
        expected = trial.check().parameters()
        unbroken = oracle_of(site)
        unbroken.oracle.run()
        for name, tensors in unbroken.parameters().items():
            assert all(torch.equal(expected[name][key], value) for key, value in tensors.items())
