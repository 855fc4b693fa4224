"""A peer with a certificate that does not keep to the protocol: the others are not misled."""

import json
from collections import Counter
from typing import Any

import psutil
import pytest

from laser_vfl.client.peers.frame_buffer import max_held_frames
from laser_vfl.core.errors import ExitCode
from tests.support.attacks.unruly_client import NUM_LATE, SAID
from tests.support.daemons.harness import Site
from tests.support.daemons.watched_client import HELD
from tests.support.trials.faults import Fault
from tests.support.trials.trial import Trial

HONEST = ("bank", "telco")

STEADY = {"epochs": 4, "step_timeout_s": 60.0}
"""For runs in which nobody is to be left out, however slow the machine is."""


def unruly(*habits: str, who: str = "shop") -> dict[str, Any]:
    """One client has these habits; the others are watched."""
    honest = {"bank", "shop", "telco"} - {who}
    return {
        "faults": [Fault(habit, who) for habit in habits],
        "programs": dict.fromkeys(honest, ("tests.support.daemons.watched_client",)),
    }


def most_held(trial: Trial, name: str) -> int:
    lines = trial.clients[name].stderr.splitlines()
    return max(int(line.removeprefix(HELD)) for line in lines if line.startswith(HELD))


@pytest.mark.core
def test_12_repeated_stale_and_reordered_frames_are_applied_once(site: Site) -> None:
    with Trial(site, training=STEADY, **unruly("repeats", "stale", "swapped")) as trial:
        trial.finish()
        for name in HONEST:
            dropped = trial.dropped(name)
            assert dropped["repeated"] > 50, "the fault has not happened"
            assert dropped["old generation"] > 50, "the fault has not happened"
            assert most_held(trial, name) <= max_held_frames(0)
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_12_late_frames_of_an_earlier_life_are_dropped_and_counted(site: Site) -> None:
    """Shop is left out, comes back, and goes on to send as the process that it was before."""
    with Trial(site, slow=True, **unruly("late")) as trial:
        trial.inject(Fault("stop", "shop", after=("shop", 12)))
        trial.wait_together("bank", "telco")
        trial.inject(Fault("continue", "shop"))
        trial.wait_together("bank", "shop", "telco")
        trial.site.hurry()
        trial.finish()
        for name in HONEST:
            assert trial.dropped(name)["earlier life"] >= NUM_LATE
        trial.check()


def test_13_a_frame_of_two_steps_ahead_is_held_until_its_time(site: Site) -> None:
    settled = {"representation": "tests.support.trials.fault_models:settled"}
    with Trial(site, models={"shop": settled}, training=STEADY, **unruly("early")) as trial:
        trial.finish()
        assert trial.clients["shop"].stderr.count(SAID["early"]) > 5
        for name in HONEST:
            assert trial.dropped(name)["repeated"] > 5, "what came early has not come again"
            assert most_held(trial, name) <= max_held_frames(0)
        assert [trial.generations(name) for name in trial.roster] == [[1]] * 3
        trial.check()


def test_13_a_frame_of_a_generation_to_come_does_no_harm(site: Site) -> None:
    with Trial(site, **unruly("future")) as trial:
        trial.clients["shop"].wait_for(SAID["future"], times=2)
        trial.finish()
        assert all(most_held(trial, name) <= max_held_frames(0) for name in HONEST)
        trial.check()


def test_13_a_flood_of_frames_is_not_taken_in(site: Site) -> None:
    """Frames larger than any of this run are refused, and the others go on.

    Shop floods each peer once in each of its lives. On a fast machine it has time for three
    offences before the run ends, and is barred; on a slow one it may be back in the end.
    """
    with Trial(site, training={"epochs": 15}, **unruly("flood")) as trial:
        trial.wait_step("bank", 10)
        before = {name: _rss(trial, name) for name in HONEST}
        trial.clients["shop"].wait_for(SAID["flood"], times=2)
        trial.finish(*HONEST)
        num_seen = 0
        for name in HONEST:
            assert _rss(trial, name) < before[name] + 100e6, "400 MB were sent"
            assert most_held(trial, name) <= max_held_frames(0)
            offences = trial.site.metrics(name)[-1]["offences"]
            assert set(offences) <= {"oversize frame"}
            num_seen += offences.get("oversize frame", 0)
        assert num_seen >= 1, "the fault has not happened"
        trial.check(*HONEST)


@pytest.mark.parametrize("habit", ["garbage", "impostor"])
def test_12_a_stream_with_something_else_in_it_is_opened_anew(habit: str, site: Site) -> None:
    with Trial(site, **unruly(habit)) as trial:
        trial.clients["shop"].wait_for(SAID[habit], times=2)
        trial.finish()
        assert "Traceback" not in site.report()
        trial.check()


@pytest.mark.parametrize("habit", ["misshapen", "no_numbers", "too_long"])
def test_12_who_breaks_the_contract_is_left_out(habit: str, site: Site) -> None:
    """The first in the roster does it, again and again, and the others stay."""
    with Trial(site, slow=True, **unruly(habit, who="bank")) as trial:
        bank = trial.clients["bank"]
        bank.wait_for("the others go on without this client: it broke the contract", times=2)
        assert bank.wait_exit() == ExitCode.STOPPED
        assert "it is barred from this run" in bank.stderr
        assert bank.stderr.count(SAID[habit]) >= 3, "in each of its lives"
        trial.site.hurry()
        trial.finish()
        reason, num_seen = "misshapen" if habit == "misshapen" else "unfit numbers", 0
        for name in ("shop", "telco"):  # who still waits for others may not have looked at it
            assert "Traceback" not in trial.clients[name].stderr
            offences = Counter(trial.site.metrics(name)[-1]["offences"])
            assert set(offences) <= {reason}
            assert trial.clients[name].stderr.count("bank broke the contract") == offences[reason]
            num_seen += offences[reason]
        assert num_seen >= 3
        # On a machine that is too busy anybody may be left out for being slow as well.
        departures = trial.status()["departures"]
        accused = [gone for gone in departures if "contract" in gone["reason"]]
        assert [gone["client"] for gone in accused] == ["bank"] * 3
        assert "barred from this run" in accused[-1]["reason"]
        trial.check("shop", "telco")
        for name in ("shop", "telco"):
            offences = Counter(trial.site.metrics(name)[-1]["offences"])
            assert trial.clients[name].terminate() == 0
            assert _audited(trial, name) == Counter({("bank", reason): offences[reason]})


def _audited(trial: Trial, name: str) -> Counter[tuple[str, str]]:
    """How often a client that has ended has written down whom it accused of what."""
    found: Counter[tuple[str, str]] = Counter()
    for line in (trial.site.path / f"{name}-state" / "audit.jsonl").read_text().splitlines():
        if (event := json.loads(line))["event"] == "offence":
            found[event["peer"], event["reason"]] += event["count"]
    return found


def _rss(trial: Trial, name: str) -> int:
    return int(psutil.Process(trial.clients[name].pid).memory_info().rss)
