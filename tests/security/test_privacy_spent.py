"""Noise is counted across runs: one too many does not take place, and nothing leaves for it."""

import json
from typing import Any

import pytest

from laser_vfl.cli.doctor.doctor_command import examine
from laser_vfl.client.privacy_budget import epsilon
from laser_vfl.client.privacy_ledger import FILE_NAME
from tests.support.attacks.attack_results import Results
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
EPOCHS, NOISE, DELTA = 8, 20.0, 1e-5
NUM_RELEASES = EPOCHS + 1
MAX_EPSILON = 1.35 * epsilon(NOISE, NUM_RELEASES, DELTA)
"""Enough for a run and the steps of it that a killed client does again, and not for two runs."""
SLOW = {
    "representation": "tests.support.data.own_models:slow",
    "representation_options": {"delay_s": 0.06},
}


def start(site: Site, name: str) -> Process:
    privacy = {"clip": 1.0, "noise": NOISE, "delta": DELTA}
    if name == "bank":
        privacy["max_epsilon"] = MAX_EPSILON
    return site.start_client(site.client_config(name, privacy=privacy, model=SLOW))


def counted(site: Site) -> list[dict[str, Any]]:
    return list(json.loads((site.path / "bank-state" / FILE_NAME).read_text())["runs"])


def num_alignments(site: Site) -> int:
    lines = (site.path / "coordinator-state" / "audit.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines].count("alignment")


@pytest.mark.timeout(240)
def test_a_run_that_would_pass_the_maximum_does_not_take_place(
    site: Site, results: Results
) -> None:
    people = People(90)
    for name in ROSTER:
        people.write(site.path, name, p_hold=1.0)
    training = {"epochs": EPOCHS, "checkpoint_every": 2}
    config = site.coordinator_config(ROSTER, training, quorum=2, on_lost_client="wait")
    site.start_coordinator(config)
    bank, shop = (start(site, name) for name in ROSTER)
    eventually(lambda: site.metrics("bank"), "bank trains")
    (charge,) = counted(site)
    assert (charge["noise"], charge["num_releases"]) == (NOISE, NUM_RELEASES)

    bank.kill()
    bank = start(site, "bank")
    bank.wait_for("coming back to run")
    site.hurry()
    for client in (bank, shop):
        client.wait_for_served(within_s=90)
    first, *again = spent = counted(site)
    assert first == charge, "to come back to a run does not count it anew"
    assert all(one["num_releases"] < NUM_RELEASES for one in again), "only steps done again"
    assert {one["run"] for one in again} <= {charge["run"]}
    num_releases = sum(one["num_releases"] for one in spent)
    so_far = f"{epsilon(NOISE, num_releases, DELTA):.4g}"
    assert site.events().count("started") == 1

    before = num_alignments(site)
    retrain = ["retrain", "--coordinator", site.address, "--timeout", "5s", *site.tls_options]
    refused = site.run("retrain", *retrain)
    assert refused.wait_exit() != 0
    bank.wait_for(f"epsilon is {so_far} (runs so far: 1) and would be")
    assert num_alignments(site) == before, "no id was blinded"
    assert counted(site) == spent
    results.note("one run too many", "no id blinded")
    with bank.predictor() as predictor:
        assert predictor.predict(["person-00001"]).errors == (None,)
    found = {finding.check: finding for finding in examine(site.path / "bank.yaml", insecure=False)}
    said = f"epsilon {so_far} of {MAX_EPSILON:g} spent (delta 1e-05, runs so far: 1)"
    assert found["privacy"].message == said

    assert bank.terminate() == 0
    path = site.path / "bank-state" / FILE_NAME
    path.write_bytes(path.read_bytes()[:-20])
    torn = start(site, "bank")
    assert torn.wait_exit() == 3
    assert "nobody could say how much that is" in torn.stderr
    found = {finding.check: finding for finding in examine(site.path / "bank.yaml", insecure=False)}
    assert (found["privacy"].status, found["privacy"].exit_code) == ("FAIL", 3)
    assert "Traceback" not in site.report()
