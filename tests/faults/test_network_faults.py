"""Streams that are cut, silent, slow or late, and clients that hang."""

import time

import pytest

from tests.support.daemons.harness import Site, eventually
from tests.support.trials.fault_models import SLUGGISH
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, PACE_S, Trial


@pytest.mark.core
def test_5_stopped_for_longer_than_the_deadline(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        trial.inject(Fault("stop", "shop", after=("shop", 12)))
        trial.wait_generation("bank", 2, 15)
        trial.inject(Fault("continue", "shop"))
        trial.wait_generation("shop", 3)
        trial.site.hurry()
        trial.finish()
        trial.check()


@pytest.mark.core
def test_9_a_pair_that_cannot_reach_each_other(site: Site) -> None:
    """Bank comes before shop in the roster, so shop is left out until the way is free again.

    A stream that swallows everything looks well: the deadline of a step tells.
    """
    with Trial(site, proxied=["shop"], training={"step_timeout_s": 6.0}, slow=True) as trial:
        trial.inject(Fault("black hole", "shop", after=("shop", 12)))
        eventually(lambda: trial.proxies["shop"].num_bytes_lost, "a frame is lost")
        trial.wait_generation("bank", 2, 30)
        assert "shop and bank cannot reach" in trial.coordinator.stderr.replace(
            "bank and shop", "shop and bank"
        )
        trial.clients["shop"].wait_for("the others go on without this client")
        trial.wait_generation("telco", 2)
        trial.inject(Fault("heal", "shop"))
        trial.wait_generation("shop", 3, 30)
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_10_jitter_changes_nothing(site: Site) -> None:
    """Every link has a proxy: bank calls shop and telco, shop calls telco, all the coordinator."""
    called = ["coordinator", "shop", "telco"]
    jitter = [Fault("jitter", name, size=0.2) for name in called]
    training = {"epochs": 1, **LONG}
    with Trial(site, proxied=called, faults=jitter, training=training) as trial:
        trial.finish()
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_11_a_stream_that_is_cut_and_comes_back(site: Site) -> None:
    with Trial(site, proxied=["shop", "telco"], training=LONG, slow=True) as trial:
        for step in (6, 12, 18):
            taken = [proxy.num_connections for proxy in trial.proxies.values()]
            trial.inject(
                Fault("cut", "shop", after=("shop", step)),
                Fault("cut", "telco", then_wait_s=0.3),
                Fault("heal", "shop"),
                Fault("heal", "telco"),
            )
            eventually(
                lambda taken=taken: all(  # type: ignore[misc]
                    proxy.num_connections > before
                    for proxy, before in zip(trial.proxies.values(), taken, strict=True)
                ),
                "streams are opened anew",
            )
        trial.site.hurry()
        trial.finish()
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_16_the_last_two_lose_each_other(site: Site) -> None:
    """Both may be lost in one change, or one after the other."""
    with Trial(site, proxied=["shop"], slow=True) as trial:
        trial.inject(Fault("kill", "telco", after=("telco", 12)), Fault("cut", "shop"))
        alone = trial.wait_together("bank", within_s=25)
        assert trial.generations("shop")[-1] < alone
        trial.inject(Fault("heal", "shop"))
        assert trial.wait_together("bank", "shop", within_s=25) > alone
        trial.wait_generation("shop", alone + 1)
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "shop")


def test_18_who_is_slow_is_waited_for_within_the_deadline(site: Site) -> None:
    slow = Fault("slow", "shop", size=10 * PACE_S)
    with Trial(site, faults=[slow], training={"epochs": 2, **LONG}) as trial:
        trial.finish()
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_18_past_the_deadline_the_others_go_on(site: Site) -> None:
    slow = Fault("slow", "shop", size=5.0)
    with Trial(site, faults=[slow], training={"epochs": 4}) as trial:
        trial.wait_together("bank", "telco")
        assert "it has been at one step for" in trial.coordinator.stderr
        trial.site.hurry()
        trial.finish("bank", "telco")
        trial.clients["shop"].wait_for(SLUGGISH)
        trial.check("bank", "telco")


def test_18_or_wait_for_it_if_they_are_told_to(site: Site) -> None:
    slow = Fault("slow", "shop", size=4.0)
    training = {"epochs": 1, "batch_size": 96}
    with Trial(
        site, ["bank", "shop"], faults=[slow], training=training, on_lost_client="wait"
    ) as trial:
        began = time.monotonic()
        trial.finish()
        assert time.monotonic() - began > 2 * slow.size
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 2
        trial.check()
