"""Logs of a real federation: what an auditor needs is there, and nothing of the people."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from laser_vfl.data import blind_ids
from tests.support.daemons.harness import Site, eventually

ROSTER = ["bank", "shop"]
ID = "zqperson"
TOWN = "Zqtown"
LABEL = "zqlabel"
NUMBER = 8675309.125


def write_tables(directory: Path, name: str) -> None:
    rng = np.random.default_rng(len(name))
    num = 60
    frame = pl.DataFrame(
        {
            "id": [f"{ID}-{i:04d}" for i in range(num)],
            "age": np.where(np.arange(num) % 3 == 0, NUMBER, rng.random(num)),
            "town": [f"{TOWN}{i % 3}" for i in range(num)],
            "kind": [f"{LABEL}{i % 2}" for i in range(num)],
        }
    )
    frame[:40].write_csv(directory / f"{name}_train.csv")
    frame[40:50].write_csv(directory / f"{name}_test.csv")
    frame[50:].write_csv(directory / f"{name}_serve.csv")


def audit_lines(site: Site, state: str) -> Callable[[str], list[dict[str, Any]]]:
    def lines(event: str) -> list[dict[str, Any]]:
        text = (site.path / state / "audit.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]

    return lines


def secrets_of(site: Site) -> dict[str, str]:
    """Texts that no log may have."""
    secret = (site.path / "id.secret").read_text().strip()
    digest = blind_ids([f"{ID}-0050"], secret.encode(), site.federation)[0].tobytes()
    found = {
        "an id": ID,
        "a feature": str(int(NUMBER)),
        "a feature's text": TOWN,
        "a label": LABEL,
        "the id secret": secret,
        "a digest": digest.hex(),
        "a digest as Python shows it": repr(digest)[2:20],
    }
    for name in ("coordinator", *ROSTER):
        assert site.authority is not None
        pem = Path(site.authority.issue(name)["key"]).read_text().splitlines()
        found[f"the key of {name}"] = pem[1]
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_logs_have_events_and_nothing_of_the_people(site: Site, scheme: str) -> None:
    coordinator = site.start_coordinator(
        site.coordinator_config(ROSTER, {}, log_level="debug", alignment=scheme)
    )
    clients = {}
    for name in ROSTER:
        write_tables(site.path, name)
        data = {table: f"{name}_{table}.csv" for table in ("train", "test", "serve")}
        config = site.client_config(
            name, data={**data, "id": "id", "label": "kind"}, log_level="debug"
        )
        clients[name] = site.start_client(config)
    for client in clients.values():
        client.wait_for_served()
    bank = audit_lines(site, "bank-state")
    ids = [f"{ID}-{i:04d}" for i in (3, 45, 55)]
    with clients["bank"].predictor(20.0) as predictor:
        eventually(lambda: predictor.predict(ids).blocks.all(), "all blocks answer")
        assert predictor.predict([*ids, f"{ID}-9999"]).errors[3]
        columns = {"age": [str(NUMBER)], "town": [f"{TOWN}7"]}
        predictor.predict([f"{ID}-8888"], features=columns)
        with pytest.raises(Exception, match="sample 1"):
            predictor.predict([f"{ID}-8888"], features={**columns, "age": ["nan"]})
    serve = site.path / "bank_serve.csv"
    serve.write_text(f'id,age,town\n{ID}-7777,"{NUMBER}"x,{TOWN}\n')
    clients["bank"].wait_for("data.serve is not used")
    serve.write_text(f"id,age,town\n{ID}-7777,{TOWN},{TOWN}\n")
    clients["bank"].wait_for("data.serve is not used", times=2)
    for process in (*clients.values(), coordinator):
        assert process.terminate() == 0

    [alignment] = [line for line in bank("alignment") if line["purpose"] == "run"]
    assert (alignment["outcome"], alignment["members"]) == ("aligned", ROSTER)
    assert alignment["num_rows"] == {"train": 40, "test": 10, "serve": 60}
    [joined], [left] = bank("joined"), bank("left")
    assert (joined["members"], left["reason"]) == (ROSTER, "finished")
    assert joined["run"] == left["run"] == alignment["id"]
    predicted = bank("predicted")
    assert {line["caller"] for line in predicted} == {f"spiffe://{site.federation}/client/bank"}
    assert sum(line["ids"] - line["ids_predicted"] for line in predicted) == 1
    served = audit_lines(site, "shop-state")("served")
    assert {line["peer"] for line in served} == {"bank"}
    assert sum(line["ids_served"] for line in served) >= 6
    assert len(bank("started")) == len(bank("stopped")) == 1
    seen = audit_lines(site, "coordinator-state")
    assert {line["client"] for line in seen("joined")} == set(ROSTER)
    expected = {f"spiffe://{site.federation}/client/{name}" for name in ROSTER}
    assert {line["identity"] for line in seen("joined")} == expected
    assert {line["client"] for line in seen("left")} == set(ROSTER)
    assert seen("alignment")[0]["num_rows"]["shop"]["train"] == 40
    assert [line["state"] for line in seen("run")] == ["started", "finished"]
    assert len(seen("started")) == len(seen("stopped")) == 1

    patterns = ("*.out", "*.err", "*-state/audit.jsonl", "*-state/metrics.jsonl")
    logs = [path for p in (*patterns, "*-state/runs.jsonl") for path in site.path.glob(p)]
    assert len(logs) == 3 + 3 + 3 + 2 + 1
    for path in logs:
        text = path.read_text()
        for what, secret in secrets_of(site).items():
            assert secret not in text, f"{path.name} has {what}"
