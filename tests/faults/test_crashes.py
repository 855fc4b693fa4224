"""Clients that die: the others go on with the blocks they have, and take them in again."""

import json
from pathlib import Path

import pytest
from harness import Site, eventually
from trial import PACE_S, Fault, Trial

from laser_vfl.core.history import Loaded


def _mortal(site: Site, at: int) -> tuple[dict[str, object], Path]:
    flag = site.path / "it-has-died"
    options = {"delay_s": PACE_S, "at": at, "flag": str(flag)}
    return {"representation": "fault_models:mortal", "representation_options": options}, flag


def _loads(trial: Trial) -> list[int]:
    """The steps of the checkpoints that shop has begun from."""
    return [entry.step for entry in trial.log("shop") if isinstance(entry, Loaded)]


def test_1_killed_before_it_sends_its_representation(site: Site) -> None:
    model, flag = _mortal(site, at=40)
    with Trial(site, models={"shop": model}) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        assert flag.exists()
        trial.finish()
        assert trial.generations("bank") == trial.generations("telco") == [1, 2]
        trial.check("bank", "telco")


@pytest.mark.variant
def test_2_killed_between_representation_and_gradient(site: Site) -> None:
    flag = site.path / "it-has-died"
    head = {"fusion": "fault_models:mortal_head", "fusion_options": {"at": 40, "flag": str(flag)}}
    with Trial(site, models={"shop": head}) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        assert flag.exists()
        trial.finish()
        assert trial.generations("bank") == [1, 2]
        trial.check("bank", "telco")


def test_2_killed_when_some_have_its_frames_and_some_do_not(site: Site) -> None:
    """The stream of bank and shop is a black hole by then; telco gets all that shop sends."""
    with Trial(site, proxied=["shop"]) as trial:
        trial.inject(
            Fault("black hole", "shop", after=("shop", 30), then_wait_s=0.2), Fault("kill", "shop")
        )
        assert trial.proxies["shop"].num_bytes_lost > 0
        trial.finish()
        trial.check("bank", "telco")


def test_3_killed_while_it_writes_a_checkpoint(site: Site) -> None:
    wide = {"representation_options": {"delay_s": PACE_S, "width": 400_000}}
    with Trial(site, models={"shop": wide}, training={"epochs": 10}) as trial:
        state = site.path / "shop-state"
        eventually(lambda: list(state.glob("runs/*/checkpoints/.*.tmp")), "a checkpoint is written")
        trial.inject(Fault("kill", "shop"))
        assert list(state.glob("runs/*/checkpoints/.*.tmp")), "it was whole already"
        trial.inject(Fault("start", "shop"))
        trial.finish()
        assert not list(state.glob("runs/*/checkpoints/.*.tmp"))
        trial.check()


def test_4_killed_and_restarted_three_times(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        for number in (1, 2, 3):
            trial.inject(Fault("kill", "shop", after=("shop", 25)), Fault("start", "shop"))
            eventually(
                lambda number=number: len(_loads(trial)) == number,  # type: ignore[misc]
                f"shop is back for the {number}. time",
            )
        trial.site.hurry()
        trial.finish()
        loads = _loads(trial)
        assert all(step >= 20 and step % 20 == 0 for step in loads)
        trial.check()


@pytest.mark.variant
def test_4_a_client_without_a_checkpoint_comes_back_too(site: Site) -> None:
    with Trial(site, training={"checkpoint_every": 1000}, slow=True) as trial:
        trial.inject(Fault("kill", "shop", after=("shop", 30)), Fault("start", "shop"))
        trial.wait_step("shop", 31)
        assert _loads(trial) == [0]
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_17_of_two_one_dies_and_comes_back(site: Site) -> None:
    with Trial(site, ["bank", "shop"], slow=True) as trial:
        trial.inject(Fault("kill", "bank", after=("bank", 30)))
        trial.wait_generation("shop", 2)
        alone = trial.last_step("shop")
        trial.wait_step("shop", alone + 10)
        trial.inject(Fault("start", "bank"))
        trial.wait_generation("bank", 3)
        trial.site.hurry()
        trial.finish()
        trial.check()


def test_14_sigterm_is_a_clean_leave_at_once(site: Site) -> None:
    with Trial(site) as trial:
        trial.inject(Fault("term", "shop", after=("shop", 30)))
        assert trial.clients["shop"].wait_exit() == 0
        assert "left the run" in trial.clients["shop"].stderr
        assert "Traceback" not in trial.clients["shop"].stderr
        trial.finish()
        trial.check("bank", "telco")
        history = (site.path / "coordinator-state" / "runs.jsonl").read_text().splitlines()
        changes = [json.loads(line) for line in history if '"changed"' in line]
        assert len(changes) == 1
        assert "lost shop: it left" in trial.coordinator.stderr


@pytest.mark.variant
def test_14_who_left_may_come_back(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        trial.inject(Fault("term", "shop", after=("shop", 30)))
        assert trial.clients["shop"].wait_exit() == 0
        trial.inject(Fault("start", "shop"))
        trial.wait_generation("shop", 3)
        trial.site.hurry()
        trial.finish()
        trial.check()
