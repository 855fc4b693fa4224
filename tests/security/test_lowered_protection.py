"""A coordinator that says other settings than a client requires gets nothing from it."""

import json
from typing import Any

import pytest

from tests.support.attacks.attack_results import Results
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
EPOCHS = 2
REQUIRED = {
    "masked_gradients": True,
    "alignment": "ecdh",
    "max_epochs": EPOCHS,
    "roster": ROSTER,
    "wire_precision": ["float32"],
}
MET = {"epochs": EPOCHS, "masked_gradients": True}

LOWERED: dict[str, dict[str, Any]] = {
    "masked_gradients": {"training": {"masked_gradients": False}},
    "alignment": {"alignment": "hmac"},
    "max_epochs": {"training": {"epochs": EPOCHS + 1}},
    "roster": {"clients": ["bank", "hub", "shop", "telco"]},
    "wire_precision": {"training": {"wire_precision": "float16"}},
}


def lowered(config: dict[str, Any], key: str) -> dict[str, Any]:
    changed = dict(LOWERED[key])
    return {**config, **changed, "training": {**config["training"], **changed.pop("training", {})}}


def said(client: Process, key: str) -> str:
    """The line in which a client says that it does not join."""
    (line, *_) = [line for line in client.stderr.splitlines() if f": require.{key}: " in line]
    return line


def alignments(site: Site) -> list[dict[str, Any]]:
    """What became of every alignment, by the coordinator's audit log."""
    lines = (site.path / "coordinator-state" / "audit.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "alignment"]


@pytest.mark.core
@pytest.mark.timeout(180)
def test_a_client_without_a_model_ends_before_an_id_leaves_it(site: Site, results: Results) -> None:
    people = People(60)
    for name in ROSTER:
        people.write(site.path, name)
    config = site.coordinator_config(ROSTER, MET)
    for key in LOWERED:
        coordinator = site.start_coordinator(lowered(config, key))
        # A quick answer, where others have to start first.
        bank = site.start_client(site.client_config("bank", require=REQUIRED))
        assert bank.wait_exit() == 6
        assert "and this client requires" in said(bank, key)
        assert "change require." in said(bank, key)
        assert alignments(site) == []
        assert not (site.path / "bank-state" / "alignments.json").exists()
        assert "Traceback" not in site.report()
        assert coordinator.terminate() == 0
    results.note("coordinator lowers protection", "exit code 6, no id submitted")


@pytest.mark.timeout(240)
def test_a_client_that_serves_takes_part_in_nothing_less_and_serves_on(site: Site) -> None:
    federation = Federation(site, ROSTER, MET, require=REQUIRED)
    federation.wait_whole()
    bank, (run,) = federation.clients["bank"], set(federation.runs())
    met, before = federation.coordinator_config, len(alignments(site))
    for key in ("masked_gradients", "max_epochs"):
        federation.coordinator.terminate()
        federation.coordinator_config = lowered(met, key)
        federation.start_coordinator()
        eventually(lambda key=key: f": require.{key}: " in bank.stderr, "bank refuses")  # type: ignore[misc]
        assert f"(the model of run {run} is served on)" in said(bank, key)
        assert site.run("retrain", *_retrain(site)).wait_exit() != 0
    assert len(alignments(site)) == before, "nobody has blinded or submitted an id"
    assert set(federation.runs()) == {run}
    federation.wait_whole()

    federation.coordinator.terminate()
    federation.coordinator_config = met
    federation.start_coordinator()
    eventually(
        lambda: site.run("retrain", *_retrain(site)).wait_exit() == 0, "they train as agreed"
    )
    eventually(lambda: run not in federation.runs(), "all have a new model")
    assert "Traceback" not in site.report()


def _retrain(site: Site) -> list[str]:
    return ["retrain", "--coordinator", site.address, "--timeout", "3s", *site.tls_options]
