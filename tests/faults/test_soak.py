"""19: random faults for as long as LASER_VFL_SOAK_S says; it ends as if there had been none."""

import json
import os
from statistics import mean
from typing import Any

import pytest
from soak import Soak

from tests.support.daemons.harness import Site
from tests.support.trials.trial import Trial, oracle_of

SOAK_S = float(os.environ.get("LASER_VFL_SOAK_S", "10"))
SEED = int(os.environ.get("LASER_VFL_SOAK_SEED", "19"))
ROSTER = ["bank", "shop", "telco", "clinic"]
NUM_PEOPLE = 1200
BATCH_SIZE = 64
DELAY_S = 0.04
RETURN_TIME_S = 30.0
"""How much longer than the faults the run would last, for all to be back before its end."""

FINISH_S = 120.0 + SOAK_S

MAX_LOSS = 0.02
MAX_GROWTH_MB = 40.0
"""What an allocator may keep for itself."""


@pytest.mark.timeout(4 * SOAK_S + 300)
def test_19_soak(site: Site) -> None:
    steps_per_epoch = NUM_PEOPLE * 0.8 / BATCH_SIZE
    training = {
        "epochs": round((1.2 * SOAK_S + RETURN_TIME_S) / DELAY_S / steps_per_epoch),
        "batch_size": BATCH_SIZE,
        "checkpoint_every": 25,
    }
    paced = {"representation_options": {"delay_s": DELAY_S}}
    with Trial(
        site,
        ROSTER,
        training=training,
        models=dict.fromkeys(ROSTER, paced),
        proxied=ROSTER[1:],
        num_people=NUM_PEOPLE,
        restart_grace_s=5.0,
    ) as trial:
        soak = Soak(trial, SEED, steady="bank")
        try:
            trial.wait_step("bank", 5)
            first = soak.memory().keys()
            soak.run(SOAK_S / 2)
            before = {pid: rss for pid, rss in soak.memory().items() if pid in first}
            soak.run(SOAK_S / 2)
            soak.mend()
            assert len(soak.history) >= SOAK_S / 5, "hardly anything has happened"
            for name in ROSTER:
                trial.wait_back(name)
            site.hurry()
            trial.finish(within_s=FINISH_S)
            after = soak.memory()
            _check(site, trial, before, after)
        except BaseException:
            print(
                f"LASER_VFL_SOAK_SEED={SEED} LASER_VFL_SOAK_S={SOAK_S:g}", *soak.history, sep="\n"
            )
            raise


def _check(site: Site, trial: Trial, before: dict[int, float], after: dict[int, float]) -> None:
    assert "Traceback" not in site.report()
    assert max(trial.generations("bank")) > 1
    followed = before.keys() & after.keys()
    assert trial.clients["bank"].pid in followed
    for pid in followed:
        assert after[pid] < before[pid] + MAX_GROWTH_MB, (pid, before, after)
    trial.check()
    plain = oracle_of(site)
    plain.oracle.run()
    expected = [_accuracy(plain.scores(k)) for k in range(len(ROSTER))]
    found = [
        _accuracy(json.loads((site.path / f"{name}-state" / "scores.json").read_text()))
        for name in ROSTER
    ]
    print("accuracy", found, "undisturbed", expected)
    assert mean(found) >= mean(expected) - MAX_LOSS, (found, expected)


def _accuracy(scores: dict[str, Any]) -> float:
    return float(scores["overall"]["accuracy"])
