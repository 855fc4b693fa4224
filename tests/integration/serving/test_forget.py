"""People who are forgotten at a client: it answers for them no more, and later runs lack them."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pytest

from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.data import blind_ids
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

SLOW = {
    "representation": "tests.support.data.own_models:slow",
    "representation_options": {"delay_s": 0.1},
}
ROSTER = ["bank", "shop"]
TRAINED, TESTED = "person-00003", "person-00070"
OBEYED_S = 10.0


def forget(site: Site, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["-m", "laser_vfl", "forget", "--config", f"{name}.yaml", *arguments]
    return subprocess.run(
        [sys.executable, *command], cwd=site.path, capture_output=True, text=True, timeout=60
    )


def forgotten(site: Site, name: str, *ids: str) -> dict[str, Any]:
    (site.path / "people.csv").write_text("\n".join(["id", *ids]) + "\n")
    done = forget(site, name, "--ids", "people.csv", "--format", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def serve(site: Site, name: str, *ids: str) -> None:
    rng = np.random.default_rng(1)
    columns = {f"x{j}": rng.random(len(ids)) for j in range(5)}
    pl.DataFrame({"id": list(ids), **columns}).write_csv(site.path / f"{name}_serve.csv")


def blocks(client: Process, id: str) -> list[bool]:
    """Whose blocks a prediction at a client uses; none without a prediction."""
    with client.predictor(20.0) as predictor:
        return list(map(bool, predictor.predict([id]).blocks[0]))


def wait_blocks(client: Process, id: str, wanted: list[bool]) -> None:
    what = f"{client.name} predicts {id} with {wanted}"
    eventually(lambda: blocks(client, id) == wanted, what, OBEYED_S)


def num_rows(site: Site) -> dict[str, dict[str, int]]:
    """How many rows everybody brought to the last run, by what the coordinator notes."""
    lines = (site.path / "coordinator-state" / "audit.jsonl").read_text().splitlines()
    found = [line for line in map(json.loads, lines) if line["event"] == "alignment"]
    return dict(next(line["num_rows"] for line in reversed(found) if line["purpose"] == "run"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_somebody_forgotten_is_gone_from_serving_and_from_later_runs(
    site: Site, scheme: str
) -> None:
    for name in ROSTER:
        serve(site, name, "served-1")
    federation = Federation(site, ROSTER, {"epochs": 1}, alignment=scheme)
    federation.wait_whole()
    bank = federation.clients["bank"]
    wait_blocks(bank, TESTED, [True, True])

    said = forgotten(site, "shop", TESTED, TRAINED, "served-1", "nobody we know", TESTED)
    assert (said["num_ids"], said["num_held"], said["num_new"]) == (4, 3, 4)
    assert said["num_forgotten"] == 4
    for id in (TESTED, TRAINED, "served-1"):
        wait_blocks(bank, id, [True, False])
    wait_blocks(bank, "person-00071", [True, True])
    check_not_held(federation.clients["shop"])
    _check_names(site, scheme)
    assert federation.status("shop")["num_held"] == 88

    federation.clients["shop"].terminate()
    federation.start("shop").wait_for_served()
    wait_blocks(bank, "person-00071", [True, True])
    check_not_held(federation.clients["shop"])
    assert blocks(bank, TESTED) == [True, False]

    for name in ROSTER:
        serve(site, name, "served-1", "served-2")
    wait_blocks(bank, "served-2", [True, True])
    wait_blocks(bank, "served-1", [True, False])
    if scheme == "ecdh":
        pseudonyms = _pseudonyms(site)
        assert len(pseudonyms.digests) == 90 + 1 - 3 + 1
        assert pseudonyms.known.all()

    before = federation.runs()
    retrain = ["retrain", "--coordinator", site.address, *site.tls_options]
    assert site.run("retrain", *retrain).wait_exit() == 0
    eventually(lambda: all(r not in before for r in federation.runs()), "all have a new model")
    assert {name: rows["train"] for name, rows in num_rows(site).items()} == {
        "bank": 63,
        "shop": 62,
    }
    assert {name: rows["test"] for name, rows in num_rows(site).items()} == {"bank": 27, "shop": 26}
    wait_blocks(bank, "person-00071", [True, True])
    for id in (TESTED, TRAINED, "served-1"):
        assert blocks(bank, id) == [True, False]
    check_not_held(federation.clients["shop"])


def check_not_held(shop: Process) -> None:
    """See that shop answers for nobody whom it has forgotten, whatever comes with the question."""
    unknown = "shop does not hold this sample"
    with shop.predictor(20.0) as predictor:
        answer = predictor.predict([TESTED, "person-00071", TRAINED, "nobody at all"])
        assert answer.errors == (unknown, None, unknown, unknown)
        columns = {f"x{j}": [0.5, 0.5] for j in range(5)}
        answer = predictor.predict([TESTED, "nobody at all"], features=columns)
        assert answer.errors == (None, None)
        assert answer.blocks[:, 1].all(), "by the features that came with the question"
        assert not answer.blocks[1, 0]


def _pseudonyms(site: Site) -> Any:
    state = StateDirectory(site.path / "shop-state")
    assert state.published_run is not None
    return PseudonymStore(state).read(state.published_run)


def _check_names(site: Site, scheme: str) -> None:
    if scheme == "hmac":
        assert _pseudonyms(site) is None
        return
    secret = (site.path / "id.secret").read_text().strip().encode()
    held, gone = blind_ids(["person-00071", TESTED], secret, site.federation)
    content = b"".join(p.read_bytes() for p in site.path.glob("shop-state/models/*/naming.*"))
    assert held.tobytes() in content
    assert gone.tobytes() not in content


@pytest.mark.timeout(120)
def test_a_run_under_way_keeps_its_rows_and_what_it_publishes_does_not(site: Site) -> None:
    site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 80, "batch_size": 16}))
    people = People(90)
    clients = {}
    for name in ROSTER:
        people.write(site.path, name, p_hold=1.0, test_share=0.3)
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        config = site.client_config(name, data={**data, "label": "kind"}, model=SLOW)
        clients[name] = site.start_client(config)
    eventually(lambda: site.metrics("shop"), "shop trains")
    forgotten(site, "shop", TESTED, TRAINED)
    clients["shop"].wait_for("2 people are forgotten")
    assert site.events() == ["aligned", "started"], "the run is under way"
    site.hurry()
    for name in ROSTER:
        clients[name].wait_for_served(within_s=90)
    assert num_rows(site)["shop"] == {"train": 63, "test": 27, "serve": 90}
    assert site.events() == ["aligned", "started", "finished"]
    wait_blocks(clients["bank"], "person-00071", [True, True])
    wait_blocks(clients["bank"], TESTED, [True, False])
    check_not_held(clients["shop"])
    _check_names(site, "ecdh")


@pytest.mark.timeout(120)
def test_a_wrong_file_is_one_line(site: Site) -> None:
    site.write("bank", site.client_config("bank"))
    done = forget(site, "bank", "--ids", "nowhere.csv")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "nowhere.csv: cannot be read (No such file or directory); check --ids\n"
