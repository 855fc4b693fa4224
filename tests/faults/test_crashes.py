"""Clients that die: the others go on with the blocks they have, and take them in again."""

import json
import time
from pathlib import Path

import pytest

from laser_vfl.core.training.applied_steps import Loaded
from tests.support.daemons.harness import Site, eventually
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, SLOW_PACE_S, Trial

LONG_S = 45.0
"""Nothing here takes so long unless somebody waits for a timeout."""


def _loads(trial: Trial) -> list[int]:
    """The steps of the checkpoints that shop has begun from."""
    return [entry.step for entry in trial.log("shop") if isinstance(entry, Loaded)]


@pytest.mark.core
def test_1_killed_before_it_sends_its_representation(site: Site) -> None:
    dies = Fault("dies before its representation", "shop", after=("shop", 38))
    with Trial(site, faults=[dies], training=LONG) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        trial.finish()
        assert trial.last_step("shop") == 38
        assert trial.generations("bank") == trial.generations("telco") == [1, 2]
        trial.check("bank", "telco")


def test_2_killed_between_representation_and_gradient(site: Site) -> None:
    dies = Fault("dies before its gradient", "shop", after=("shop", 38))
    with Trial(site, faults=[dies], training=LONG) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        trial.finish()
        assert trial.generations("bank") == [1, 2]
        trial.check("bank", "telco")


def test_2_killed_when_some_have_its_frames_and_some_do_not(site: Site) -> None:
    """The stream of bank and shop is a black hole by then; telco gets all that shop sends."""
    with Trial(site, proxied=["shop"], slow=True) as trial:
        trial.inject(Fault("black hole", "shop", after=("shop", 12)))
        eventually(lambda: trial.proxies["shop"].num_bytes_lost, "a frame is lost")
        trial.inject(Fault("kill", "shop"))
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")


def test_3_killed_while_it_writes_a_checkpoint(site: Site) -> None:
    """A file that is there while its writer is stopped is still there when it is killed."""
    pace = {"delay_s": 3 * SLOW_PACE_S}  # with such a model a few steps have to last long enough
    models = {name: {"representation_options": pace} for name in ("bank", "telco")}
    models["shop"] = {"representation_options": {**pace, "width": 100_000}}
    with Trial(site, models=models, training={"checkpoint_every": 2}) as trial:

        def unfinished() -> list[Path]:
            return list((site.path / "shop-state").glob("runs/*/checkpoints/.*.tmp"))

        def is_caught() -> bool:
            if not unfinished():
                return False
            trial.inject(Fault("stop", "shop"))
            if unfinished():
                return True
            trial.inject(Fault("continue", "shop"))
            return False

        eventually(is_caught, "shop is stopped while it writes a checkpoint")
        trial.inject(Fault("kill", "shop"))
        assert unfinished()
        trial.inject(Fault("start", "shop"))
        trial.wait_back("shop")
        trial.site.hurry()
        trial.finish()
        assert not unfinished()
        trial.check()


def test_4_killed_and_restarted_three_times(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        for number in (1, 2, 3):
            trial.inject(Fault("kill", "shop", after=("shop", 12)), Fault("start", "shop"))
            trial.wait_back("shop")
            assert len(_loads(trial)) == number
        trial.site.hurry()
        trial.finish()
        loads = _loads(trial)
        assert all(step >= 5 and step % 5 == 0 for step in loads)
        trial.check()


def test_4_a_client_without_a_checkpoint_comes_back_too(site: Site) -> None:
    with Trial(site, training={"checkpoint_every": 1000}, slow=True) as trial:
        trial.inject(Fault("kill", "shop", after=("shop", 12)), Fault("start", "shop"))
        trial.wait_back("shop")
        assert _loads(trial) == [0]
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_17_of_two_one_dies_and_comes_back(site: Site) -> None:
    with Trial(site, ["bank", "shop"], slow=True) as trial:
        trial.inject(Fault("kill", "bank", after=("bank", 12)))
        trial.wait_generation("shop", 2)
        alone = trial.last_step("shop")
        trial.wait_step("shop", alone + 10)
        trial.inject(Fault("start", "bank"))
        trial.wait_back("bank")
        trial.site.hurry()
        trial.finish()
        trial.check()


@pytest.mark.core
def test_14_sigterm_is_a_clean_leave_at_once(site: Site) -> None:
    """Nobody is given up here, and all timeouts are long, so that only a leave lets them go on."""
    with Trial(
        site,
        training={"step_timeout_s": LONG_S},
        heartbeat_timeout_s=LONG_S,
        on_lost_client="wait",
        slow=True,
    ) as trial:
        trial.inject(Fault("term", "shop", after=("shop", 12)))
        told_at = time.monotonic()
        trial.wait_together("bank", "telco")
        assert time.monotonic() - told_at < LONG_S / 3
        assert trial.clients["shop"].wait_exit() == 0
        assert "left the run" in trial.clients["shop"].stderr
        assert "Traceback" not in trial.clients["shop"].stderr
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")
        history = (site.path / "coordinator-state" / "runs.jsonl").read_text().splitlines()
        changes = [json.loads(line) for line in history if '"changed"' in line]
        assert len(changes) == 1
        assert "lost shop: it left" in trial.coordinator.stderr


def test_14_who_left_may_come_back(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        trial.inject(Fault("term", "shop", after=("shop", 12)))
        assert trial.clients["shop"].wait_exit() == 0
        trial.inject(Fault("start", "shop"))
        trial.wait_back("shop")
        trial.site.hurry()
        trial.finish()
        trial.check()
