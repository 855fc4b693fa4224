"""State directories of the release before are served, and a run that it left is resumed.

`earlier_release/make_state.py` says how they were made and what the archive has.
"""

import csv
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.support.daemons.harness import Process, Site, eventually, free_address
from tests.support.oracle.arithmetic import fingerprint

ARCHIVE = Path(__file__).parent / "earlier_release" / "state-0.1.0.tar.xz"
ROSTER = ("bank", "shop", "telco")

Rows = list[dict[str, str]]


@pytest.fixture
def left(site: Site) -> Site:
    """What the release before has left, with addresses and certificates of this test."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(site.path, filter="data")
    return site


def test_its_model_is_served_and_its_run_resumed(left: Site) -> None:
    expected = json.loads((left.path / "expected" / "expected.json").read_text())
    exact = fingerprint() == expected["about"]["arithmetic"]
    ledgers = {name: _ledger(left, name) for name in ROSTER}
    config = yaml.safe_load((left.path / "coordinator.yaml").read_text())
    left.start_coordinator(_with_tls(left, "coordinator", {**config, "listen": free_address()}))
    clients = {name: _start(left, name) for name in ("bank", "shop")}
    for client in clients.values():
        client.wait_ready()

    def served() -> bool:
        """All three have to be there for the run to go on; two are enough to predict."""
        found = {name: _predictions(left, name) for name in clients}
        return all(_agree(found[name], expected["predictions"][name], exact) for name in clients)

    eventually(served, "the same predictions")
    assert {_run(left, name) for name in ROSTER} == {expected["first_run"]}

    clients["telco"] = _start(left, "telco")
    left.wait_for_event("finished", times=2)
    for name in ROSTER:
        eventually(lambda name=name: _run(left, name) == expected["second_run"], "it is served")
        manifest = _manifest(left, name)
        assert manifest["num_steps"] == expected["num_steps"]
        found = load_file(left.path / f"{name}-state" / "model" / "model.safetensors")
        wanted = load_file(left.path / "expected" / f"{name}.safetensors")
        assert found.keys() == wanted.keys()
        tolerance = 0.0 if exact else 1e-3
        for key in wanted:
            torch.testing.assert_close(found[key], wanted[key], atol=tolerance, rtol=tolerance)
        if exact:
            assert manifest["scores"] == expected["scores"][name]
    assert {name: _ledger(left, name) for name in ROSTER} == ledgers
    for client in clients.values():
        assert client.terminate() == 0
    counted = left.run("forget", "forget", "--config", "bank.yaml", "--list-count")
    assert counted.wait_exit() == 0
    assert "3" in counted.stdout.split()


def _start(site: Site, name: str) -> Process:
    config = yaml.safe_load((site.path / f"{name}.yaml").read_text())
    return site.start_client(_with_tls(site, name, {**config, "coordinator": site.address}))


def _with_tls(site: Site, name: str, config: dict[str, Any]) -> dict[str, Any]:
    assert site.authority is not None
    return {**config, "tls": site.authority.issue(name)}


def _predictions(site: Site, name: str) -> Rows:
    asked = site.run("predict", "predict", "--config", f"{name}.yaml", "--ids", "ids.csv")
    assert asked.wait_exit() == 0, asked.stderr
    return list(csv.DictReader(io.StringIO(asked.stdout)))


def _agree(found: Rows, wanted: Rows, exact: bool) -> bool:
    """Whether predictions are from the same blocks; if so, they have to be the same."""
    assert [row["id"] for row in found] == [row["id"] for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert bool(one["error"]) == bool(other["error"])
        if one["blocks"] != other["blocks"]:
            return False  # the other client is not found yet
        assert one["prediction"] == other["prediction"]
        for key in other:
            if key.startswith("prob_") and other[key]:
                tolerance = 0.0 if exact else 1e-5
                assert float(one[key]) == pytest.approx(float(other[key]), tolerance, tolerance)
    return True


def _manifest(site: Site, name: str) -> dict[str, Any]:
    path = site.path / f"{name}-state" / "model" / "manifest.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _run(site: Site, name: str) -> str:
    run: str = _manifest(site, name)["run"]
    return run


def _ledger(site: Site, name: str) -> Any:
    return json.loads((site.path / f"{name}-state" / "alignments.json").read_text())
