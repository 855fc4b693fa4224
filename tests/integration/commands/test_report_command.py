"""`laser-vfl report` on a federation of real daemons: by one client, by all, by files, and down."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from laser_vfl.core.evaluation.shapley import exact_values
from laser_vfl.core.subsets import mask_of
from tests.support.daemons.harness import Process, Site
from tests.support.data.people import People
from tests.support.oracle.single_process import single_process

LABELS = {"bank": "flag", "shop": "flag", "telco": None}
ROSTER = list(LABELS)


@dataclass(frozen=True)
class Trained:
    """Three clients, two of them with labels, and a command."""

    site: Site
    clients: dict[str, Process]

    def report(self, *options: str, exit_code: int = 0) -> Process:
        process = self.site.run("report", "report", *options)
        assert process.wait_exit() == exit_code, process.report()
        return process

    def found(self, *options: str) -> dict[str, Any]:
        return dict(json.loads(self.report(*options, "--format", "json").stdout))


@pytest.fixture(scope="module")
def trained(shared_site: Site) -> Trained:
    site = shared_site
    people = People(300)
    for name, label in LABELS.items():
        people.write(site.path, name, p_hold=0.8, label=label, test_share=0.4)
    site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 10}))
    clients = {}
    for name, label in LABELS.items():
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        config = site.client_config(name, data=data | ({"label": label} if label else {}))
        clients[name] = site.start_client(config)
    for client in clients.values():
        client.wait_for_served()
    return Trained(site, clients)


def configs(*names: str) -> list[str]:
    return [word for name in names for word in ("--config", f"{name}.yaml")]


def _values(report: dict[str, Any]) -> dict[str, float]:
    return {entry["block"]: entry["value"] for entry in report["shapley"]["values"]}


def _oracle_scores(site: Site, score: str) -> dict[str, dict[int, float]]:
    """What the heads of bank and shop reach on fully observed rows, from the oracle."""
    alone = single_process(site.path)
    alone.oracle.run()
    found = {}
    for client, name in enumerate(ROSTER[:2]):
        full = alone.scores(client)["fully_observed"]
        found[name] = {
            mask_of(ROSTER.index(block) for block in subset.split(",")): entry[score]
            for subset, entry in full["by_subset"].items()
        }
        found[name][0] = full["constant"][score]
    return found


@pytest.mark.parametrize("score", ["accuracy", "auc"])
def test_the_values_are_those_of_the_oracle(score: str, trained: Trained) -> None:
    heads = _oracle_scores(trained.site, score)
    bank = trained.found(*configs("bank"), "--score", score)
    assert bank["rows"] == "fully observed"
    others = exact_values(0b110, lambda subset: heads["bank"][subset | 1])
    expected = {
        "bank": heads["bank"][1] - heads["bank"][0],
        "shop": others.worths[1].value,
        "telco": others.worths[2].value,
    }
    assert _values(bank) == pytest.approx(expected)
    together = trained.found(*configs(*ROSTER), "--score", score)
    assert together["heads"] == ["bank", "shop"]

    def joint(subset: int) -> float:
        present = [name for k, name in enumerate(ROSTER[:2]) if subset >> k & 1]
        told = [heads[n][subset] for n in present] or [heads[n][0] for n in heads]
        return sum(told) / len(told)

    worths = exact_values(0b111, joint).worths
    assert _values(together) == pytest.approx({ROSTER[k]: w.value for k, w in worths.items()})
    # Every subset but the telco's block alone, which has no head.
    assert len(together["subsets"]) == 6
    assert together["all_blocks"] == pytest.approx(joint(0b111))


def test_a_person_sees_tables_and_gets_files(trained: Trained) -> None:
    said = trained.report(*configs(*ROSTER), "--out", "reports").stdout
    run = json.loads((trained.site.path / "bank-state" / "scores.json").read_text())["run"]
    assert said.startswith(f"federation trial, run {run}, by the heads of bank and shop\n")
    assert "written to reports: report.json, report.md and report.png" in said
    out = trained.site.path / "reports"
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "report.json").read_text()) == trained.found(*configs(*ROSTER))
    assert "| bank, shop, telco |" in (out / "report.md").read_text()


def test_organisations_put_their_reports_together(trained: Trained) -> None:
    shop = trained.found(*configs("shop"))
    (trained.site.path / "shop.json").write_text(json.dumps(shop))
    together = trained.found(*configs("bank"), "--with", "shop.json")
    assert _values(together) == _values(trained.found(*configs(*ROSTER)))


def test_who_has_no_head_and_who_is_no_client(trained: Trained) -> None:
    process = trained.report(*configs("telco"), exit_code=8)
    assert "telco has no head to report on; ask bank or shop" in process.stderr
    process = trained.report(*configs("coordinator"), exit_code=2)
    assert "no client tells its coordinator how well it predicts" in process.stderr
    process = trained.report(*configs("bank"), "--score", "r2", exit_code=2)
    assert "there is no r2 of bank (binary); use accuracy or f1 or auc" in process.stderr
    assert "nonsense" in trained.report("--score", "nonsense", exit_code=2).stderr
    assert "Traceback" not in trained.site.report()


def test_the_daemon_may_be_down(trained: Trained) -> None:
    """Last in this file."""
    before = trained.found(*configs("bank"))
    for client in trained.clients.values():
        assert client.terminate() == 0
    assert trained.found(*configs("bank")) == before
