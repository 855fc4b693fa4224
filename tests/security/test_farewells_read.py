"""A client that fails tells the others nothing of its files, columns, rows or values."""

import json
from typing import Any

import pytest

from laser_vfl.remote.operations import coordinator_status
from tests.support.attacks.attack_results import Results
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site, eventually

OWN_WORDS = ("naming.safetensors", "shop-state", "shop_train", '"x2"', "salary", "person-00003")


def status(site: Site) -> dict[str, Any]:
    return dict(coordinator_status(site.address, site.operator_access()))


def problem(site: Site) -> str:
    found = [c["problem"] for c in status(site)["clients"] if c["client"] == "shop"]
    return str(found[0] or "")


def retrain(site: Site) -> int:
    command = ["retrain", "--coordinator", site.address, "--timeout", "3s", *site.tls_options]
    return site.run("retrain", *command).wait_exit()


@pytest.mark.timeout(180)
def test_what_others_hear_of_a_failure_is_a_code_and_a_sentence(
    site: Site, results: Results
) -> None:
    federation = Federation(site, ["bank", "shop"], {"epochs": 1})
    shop = federation.clients["shop"]

    table = site.path / "shop_train.csv"
    good = table.read_text()
    table.write_text(f"{good}{good.splitlines()[1]}\n")  # the same id twice
    assert retrain(site) != 0
    eventually(lambda: problem(site).endswith("; see its log (code 3)"), "status says why")
    table.write_text(good)

    models = site.path / "shop-state" / "models"
    models.rename(models.with_name("away"))
    models.touch()
    eventually(lambda: problem(site).endswith("; see its log (code 7)"), "status says why")
    shop.wait_for("naming.safetensors cannot be written")
    models.unlink()
    models.with_name("away").rename(models)

    heard: list[Any] = [
        federation.coordinator.stderr,
        federation.clients["bank"].stderr,
        (site.path / "coordinator-state" / "audit.jsonl").read_text(),
        (site.path / "coordinator-state" / "runs.jsonl").read_text(),
        (site.path / "bank-state" / "audit.jsonl").read_text(),
        json.dumps(eventually(lambda: status(site), "a status")),
        *(p.stderr + p.stdout for p in site.processes if p.name == "retrain"),
    ]
    for text in heard:
        for word in OWN_WORDS:
            assert word not in text, f"{word} in {text}"
    assert "(code 7)" in federation.coordinator.stderr
    results.note("reads farewells", "a code and a general sentence")
