"""What `laser-vfl plan` says a run will send, beside what real daemons have sent."""

import json

import pytest

from tests.support.daemons.dry_runs import wait_for_activity
from tests.support.daemons.harness import Site
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
TOLERANCE = 0.02
"""Heartbeats to the coordinator and window updates are counted too, and not planned; and what is
still under way when a line of metrics is written is not counted yet."""


def test_bytes_are_those_that_daemons_count(site: Site) -> None:
    people = People(600)
    for name in ROSTER:
        people.write(site.path, name, p_hold=0.7, label=None if name == "telco" else "kind")
    training = {"representation_dim": 256, "batch_size": 64, "epochs": 12}
    site.start_coordinator(site.coordinator_config(ROSTER, training))
    data = {name: {"train": f"{name}_train.csv", "id": "id"} for name in ROSTER}
    for name in ("bank", "shop"):
        data[name]["label"] = "kind"
    clients = [site.start_client(site.client_config(name, data=data[name])) for name in ROSTER]
    for client in clients:
        client.wait_for_served()
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))

    align = site.run("align", "align", "--config", "bank.yaml", "--dry-run", "--format", "json")
    assert align.wait_exit() == 0, align.report()
    (site.path / "overlaps.json").write_text(align.stdout)
    line = ["--bandwidth", "100mbit", "--rtt", "20ms", "--compute", "8ms", "--format", "json"]
    known = ["--overlaps", "overlaps.json", "--labels", "bank,shop"]
    asked = site.run("plan", "plan", "--config", "coordinator.yaml", *line, *known)
    assert asked.wait_exit() == 0, asked.report()
    plan = json.loads(asked.stdout)

    for name, planned in zip(ROSTER, plan["clients"], strict=True):
        lines = site.metrics(name)
        first, last = lines[0], lines[-1]
        assert last["step"] == plan["num_steps"]
        share = (last["step"] - first["step"]) / last["step"]
        counted = last["wire_bytes"] - first["wire_bytes"]
        assert counted == pytest.approx(share * planned["run"]["tcp_up"], rel=TOLERANCE)

    running = site.run("plan", "plan", "--config", "coordinator.yaml", *line, "--running")
    assert running.wait_exit() == 0, running.report()
    asked_for = json.loads(running.stdout)
    assert asked_for["labels"] == ["bank", "shop"]
    assert asked_for["samples"]["num"] == plan["samples"]["num"]
    for name in ROSTER:
        held = plan["samples"]["held"][name]
        assert asked_for["samples"]["held"][name] == pytest.approx(held, rel=0.1)
