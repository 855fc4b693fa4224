"""Disks that are full, directories that are none, clocks that jump: training does not care."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from tests.support.daemons.harness import Site, eventually
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, PACE_S, Trial

HERE = Path(__file__).parent
WIDE = {"shop": {"representation_options": {"delay_s": PACE_S, "width": 4000}}}
"""So wide that its model and its checkpoints do not fit, and everything else does."""

COORDINATOR_BYTES = 16 << 10
"""Less than the coordinator's state takes."""


def checkpoints(site: Site, name: str) -> dict[int, Path]:
    """The whole checkpoints of a client, by step."""
    found = {}
    for note in (site.path / f"{name}-state").glob("runs/*/checkpoints/[0-9]*.json"):
        try:
            stated = json.loads(note.read_text())
            content = note.with_suffix(".safetensors").read_bytes()
        except FileNotFoundError:  # it has just been removed for a later one
            continue
        if hashlib.sha256(content).hexdigest() == stated["sha256"]:
            found[stated["step"]] = note
    return found


def leftovers(site: Site, name: str) -> list[Path]:
    """What somebody has left half written; the others may be in the midst of writing."""
    return [path for path in (site.path / f"{name}-state").rglob(".*.tmp") if path.is_file()]


@pytest.mark.core
def test_15_a_full_disk_while_checkpoints_are_written(site: Site) -> None:
    with Trial(site, models=WIDE, training={"step_timeout_s": 60.0}, slow=True) as trial:
        shop = trial.clients["shop"]
        eventually(lambda: checkpoints(site, "shop"), "there is a checkpoint")
        trial.inject(Fault("full disk", "shop"))
        shop.wait_for(".safetensors cannot be written (File too large)")
        trial.wait_step("shop", trial.last_step("shop") + 12)
        before = checkpoints(site, "shop")
        assert before, "what was there before is whole"
        assert shop.stderr.count("cannot be written") == 1, "it is said once"
        trial.inject(Fault("free disk", "shop"))
        later = max(before)
        eventually(
            lambda: max(checkpoints(site, "shop"), default=0) > later, "there are later ones"
        )
        trial.site.hurry()
        trial.finish()
        assert not leftovers(site, "shop")
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_15_a_full_disk_when_the_model_is_written(site: Site) -> None:
    with Trial(site, models=WIDE, training={"step_timeout_s": 60.0}, slow=True) as trial:
        shop = trial.clients["shop"]
        eventually(lambda: checkpoints(site, "shop"), "there is a checkpoint")
        trial.inject(Fault("full disk", "shop"))
        trial.site.hurry()
        assert shop.wait_exit() == 7
        assert "model.safetensors cannot be written (File too large); free some" in shop.stderr
        assert "Traceback" not in shop.stderr
        assert not leftovers(site, "shop")
        trial.inject(Fault("start", "shop"))
        trial.finish()
        trial.check()


def test_15_a_full_disk_at_the_coordinator(site: Site) -> None:
    """It changes nothing that it could not remember; when it can again, it does."""
    with Trial(site, training=LONG, slow=True) as trial:
        trial.wait_step("bank", 25)
        coordinator, state = trial.coordinator, site.path / "coordinator-state"
        assert (state / "coordinator.sqlite3-wal").stat().st_size > COORDINATOR_BYTES
        trial.inject(
            Fault("full disk", "coordinator", size=COORDINATOR_BYTES), Fault("kill", "shop")
        )
        coordinator.wait_for("the state cannot be written")
        eventually(lambda: "lost shop" in coordinator.stderr, "it knows that shop is lost")
        stuck = trial.last_step("bank")
        time.sleep(1.0)
        assert trial.last_step("bank") == stuck, "nobody has heard of a change"
        assert trial.generations("bank") == [1]
        trial.inject(Fault("free disk", "coordinator"))
        coordinator.wait_for("the state can be written again")
        trial.wait_generation("bank", 2)
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")


def test_15_a_coordinator_that_dies_on_a_full_disk_goes_on_from_before(site: Site) -> None:
    with Trial(site, slow=True) as trial:
        trial.wait_step("bank", 25)
        trial.inject(
            Fault("full disk", "coordinator", size=COORDINATOR_BYTES), Fault("kill", "shop")
        )
        trial.coordinator.wait_for("the state cannot be written")
        trial.inject(Fault("kill", "coordinator"), Fault("start", "coordinator"))
        trial.site.hurry()
        trial.finish()
        trial.check("bank", "telco")


def test_a_directory_of_checkpoints_that_is_none(site: Site) -> None:
    """Root may write anywhere, so a directory is replaced by a file."""
    with Trial(site, training={"step_timeout_s": 60.0}, slow=True) as trial:
        shop = trial.clients["shop"]
        eventually(lambda: checkpoints(site, "shop"), "there is a checkpoint")
        (directory,) = (site.path / "shop-state").glob("runs/*/checkpoints")
        directory.rename(directory.with_name("away"))
        directory.touch()
        shop.wait_for(".safetensors cannot be written (")
        trial.site.hurry()
        trial.finish()
        assert "Traceback" not in shop.stderr
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_a_state_directory_without_a_place_for_runs(site: Site) -> None:
    """It says so before anything has begun, and the others wait until it is right."""
    (site.path / "shop-state").mkdir()
    (site.path / "shop-state" / "runs").touch()
    with Trial(site, training={"epochs": 2}) as trial:
        assert trial.clients["shop"].wait_exit() in (2, 7)
        assert "shop-state/runs" in trial.clients["shop"].stderr
        assert "Traceback" not in trial.clients["shop"].stderr
        (site.path / "shop-state" / "runs").unlink()
        trial.inject(Fault("start", "shop"))
        trial.finish()
        trial.check()


@pytest.mark.core
def test_a_wall_clock_that_jumps(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = filter(None, (str(HERE / "jumping_clock"), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with Trial(site, training={"step_timeout_s": 60.0}) as trial:
        trial.finish()
        for name in trial.roster:
            times = [line["time"] for line in site.metrics(name)]
            assert max(times) - min(times) > 600, "the clock has not jumped"
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()
