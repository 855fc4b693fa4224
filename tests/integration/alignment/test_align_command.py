"""`laser-vfl align --dry-run` against real daemons, and with wrong input."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.support.daemons.dry_runs import history, no_tracebacks, wait_for_activity
from tests.support.daemons.harness import Process, Site
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
NUM_SAMPLES = 80


@dataclass(frozen=True)
class Trained:
    """Three clients that serve, and a command."""

    site: Site
    clients: dict[str, Process]

    def align(self, *options: str, config: str = "bank.yaml", exit_code: int = 0) -> Process:
        process = self.site.run("align", "align", "--config", config, *options)
        assert process.wait_exit() == exit_code, process.report()
        return process


@pytest.fixture(scope="module")
def trained(shared_site: Site) -> Trained:
    site = shared_site
    people = People(NUM_SAMPLES)
    for name in ROSTER:
        people.write(site.path, name, p_hold=0.7, test_share=0.25)
    site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 1}))
    clients = {name: site.start_client(_config(site, name)) for name in ROSTER}
    for client in clients.values():
        client.wait_for_served()
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
    return Trained(site, clients)


def _config(site: Site, name: str, **more: Any) -> dict[str, Any]:
    data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
    return site.client_config(name, data={**data, "label": "kind"}, **more)


def _rows(site: Site, name: str, table: str) -> set[str]:
    lines = (site.path / f"{name}_{table}.csv").read_text().splitlines()
    return {line.split(",")[0] for line in lines[1:]}


def test_json_has_every_pattern(trained: Trained) -> None:
    found = json.loads(trained.align("--dry-run", "--format", "json").stdout)
    assert (found["client"], found["scheme"]) == ("bank", "ecdh")
    assert (found["roster"], found["members"], found["absent"]) == (ROSTER, ROSTER, [])
    for table in ("train", "test"):
        held = {name: _rows(trained.site, name, table) for name in ROSTER}
        everybody = set().union(*held.values())
        said = found["tables"][table]
        assert said["num_rows"] == len(held["bank"])
        assert said["num_samples"] == len(everybody)
        assert said["num_shared"] == len(held["bank"] & (held["shop"] | held["telco"]))
        for pattern in said["patterns"]:
            those = [
                p for p in everybody if [n for n in ROSTER if p in held[n]] == pattern["blocks"]
            ]
            assert pattern["num_samples"] == len(those) > 0
        assert sum(pattern["num_samples"] for pattern in said["patterns"]) == len(everybody)


def test_a_person_sees_a_table_and_a_picture(trained: Trained) -> None:
    said = trained.align("--dry-run", "--plot", "overlaps.png").stdout
    assert said.startswith("bank of federation trial: aligned by ecdh in ")
    assert "took part: bank, shop, telco" in said
    num_rows = len(_rows(trained.site, "bank", "train"))
    assert f"bank has {num_rows} rows; others hold" in said
    assert "picture: overlaps.png" in said
    assert (trained.site.path / "overlaps.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_was_trained(trained: Trained) -> None:
    trained.align("--dry-run", config="telco.yaml")
    finished = [line for line in history(trained.site) if line["event"] == "finished"]
    assert len(finished) == 1
    last = history(trained.site)[-1]
    assert (last["event"], last["purpose"]) == ("aligned", "dry run")


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no dry run": ([], 2, "add --dry-run"),
    "a picture of a strange kind": (["--dry-run", "--plot", "x.docx"], 2, "x.docx"),
    "a picture nowhere": (["--dry-run", "--plot", "nowhere/x.png"], 2, "nowhere"),
    "no time": (["--dry-run", "--timeout", "soon"], 2, "--timeout"),
    "a format that does not exist": (["--dry-run", "--format", "xml"], 2, "xml"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_named_and_nobody_is_asked(case: str, trained: Trained) -> None:
    options, exit_code, what = WRONG[case]
    before = len(history(trained.site))
    process = trained.align(*options, exit_code=exit_code)
    assert what in process.stderr
    assert not process.stdout
    assert "Traceback" not in process.stderr
    assert len(history(trained.site)) == before


def test_a_configuration_that_is_not_there(trained: Trained) -> None:
    process = trained.align("--dry-run", config="museum.yaml", exit_code=2)
    assert "museum.yaml" in process.stderr


def test_a_daemon_that_is_not_up(trained: Trained) -> None:
    config = _config(trained.site, "bank", state="./nobodys-state")
    trained.site.write("down", config)
    process = trained.align("--dry-run", config="down.yaml", exit_code=4)
    assert "does not seem to be up" in process.stderr
    assert "laser-vfl client run --config down.yaml" in process.stderr


def test_the_daemon_of_somebody_else(trained: Trained) -> None:
    config = yaml.safe_load((trained.site.path / "bank.yaml").read_text())
    trained.site.write("other", {**config, "state": "./shop-state"})
    process = trained.align("--dry-run", config="other.yaml", exit_code=5)
    assert "somebody else than expected answers" in process.stderr


def test_too_many_in_a_day(trained: Trained) -> None:
    """Somebody who probes is stopped by everybody else, and not only by itself."""
    site = trained.site
    assert trained.clients["telco"].terminate() == 0
    trained.clients["telco"] = site.start_client(_config(site, "telco", alignments_per_day=3))
    trained.clients["telco"].wait_for_served()
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
    others = trained.align("--dry-run", exit_code=7)
    assert "telco cannot take part in the alignment" in others.stderr
    own = trained.align("--dry-run", config="telco.yaml", exit_code=8)
    assert "raise alignments_per_day" in own.stderr
    assert "alignments within a day" in own.stderr
    assert "it has reached a limit of its own; see its log (code 8)" in others.stderr
    assert all(client.alive for client in trained.clients.values())


def test_without_somebody(trained: Trained) -> None:
    """Last in this file."""
    assert trained.clients["telco"].terminate() == 0
    wait_for_activity(trained.site, dict.fromkeys(ROSTER[:2], "idle"))
    said = trained.align("--dry-run").stdout
    assert "took part: bank, shop\n" in said
    assert "absent: telco" in said
    no_tracebacks(trained.site)
