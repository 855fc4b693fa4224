"""A federation that runs on nothing but defaults: what a new user has on the first day.

The files have the keys without which no daemon starts, and no others.
"""

import csv
import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons.harness import free_address
from tests.support.daemons.installed import Installation
from tests.support.data.people import People

ROSTER = ("bank", "shop", "telco")
TRAINING = {"representation_dim": 8, "batch_size": 32, "epochs": 60}
NUM_STEPS = 900
"""480 samples in batches of 32, 60 times: the default checkpoints come every 200 steps."""

Rows = list[dict[str, str]]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with Installation(tmp_path) as found:
        _set_up(found)
        yield found
        assert "Traceback" not in found.logs(), found.logs()


def _set_up(installation: Installation) -> None:
    """Write what the README says that a federation needs."""
    people = People(600, seed=5)
    for name in ROSTER:
        people.write(installation.path, name, p_hold=0.8, test_share=0.2)
    installation.call("certs", "init", "--federation", "trial", "--dir", "certs")
    installation.call("certs", "issue", "--dir", "certs", "--all", ",".join(ROSTER))
    address = free_address()
    coordinator = {"listen": address, "clients": list(ROSTER), "training": TRAINING}
    for name in ("coordinator", *ROSTER):
        data = {"id": "id", "label": "kind"}
        data |= {table: f"{name}_{table}.csv" for table in ("train", "test")}
        client = {"name": name, "listen": "127.0.0.1:0", "coordinator": address, "data": data}
        files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
        config = {
            "federation": "trial",
            "state": f"./{name}-state",
            **(coordinator if name == "coordinator" else client),
            "tls": {key: f"certs/{file}" for key, file in files.items()},
        }
        installation.write(name, config)


def _predictions(installation: Installation, name: str) -> Rows:
    """What a client predicts of its test table, by the command and its default deadline."""
    path = installation.path / f"{name}_test.csv"
    printed = installation.call("predict", "--config", f"{name}.yaml", "--ids", path.name)
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == len(path.read_text().splitlines()) - 1
    assert all(row["prediction"] and not row["error"] for row in rows)
    return rows


def _with_all_blocks(installation: Installation) -> dict[str, Rows]:
    """What everybody predicts once everybody's block is used."""
    answers: dict[str, Rows] = {}

    def all_used() -> bool:
        answers.update({name: _predictions(installation, name) for name in ROSTER})
        return all(
            any(row["blocks"] == ",".join(ROSTER) for row in rows) for rows in answers.values()
        )

    installation.wait(all_used, "every client predicts with every block")
    return answers


@pytest.mark.core
@pytest.mark.timeout(300)
def test_a_killed_client_returns_when_the_others_have_finished(installation: Installation) -> None:
    """It has a model from what it had learnt; everybody predicts, also after a restart of all."""
    installation.start("coordinator", *ROSTER)
    installation.wait(lambda: installation.last_checkpoint("bank"), "the bank has a checkpoint")
    installation.kill("bank")
    assert not installation.num_finished()
    installation.wait(installation.num_finished, "the others finish")

    installation.start("bank")
    installation.wait(lambda: installation.manifest("bank"), "the bank has a model")
    steps = {name: installation.manifest(name)["num_steps"] for name in ROSTER}
    assert 0 < steps["bank"] < steps["shop"] == steps["telco"] == NUM_STEPS
    before = _with_all_blocks(installation)

    installation.stop_all()
    installation.start("coordinator", *ROSTER)
    installation.wait(installation.are_ready, "all daemons are up")
    assert _with_all_blocks(installation) == before
    assert installation.num_finished() == 1


@pytest.mark.timeout(300)
def test_a_client_sleeps_until_the_others_have_finished(installation: Installation) -> None:
    """As a laptop does. It serves an older model meanwhile, and then what it has of the new one."""
    installation.start("coordinator", *ROSTER)
    installation.wait(installation.num_finished, "all finish the first run")
    installation.wait(lambda: installation.manifest("telco"), "the telco has its model")
    first = installation.manifest("telco")["run"]
    installation.call("retrain", "--config", "coordinator.yaml")
    installation.wait(lambda: installation.last_checkpoint("telco") >= 600, "the end is near")
    installation.daemons["telco"].send_signal(signal.SIGSTOP)
    assert installation.num_finished() == 1
    installation.wait(lambda: installation.num_finished() == 2, "the others finish the second run")

    installation.daemons["telco"].send_signal(signal.SIGCONT)
    installation.wait(lambda: installation.manifest("telco")["run"] != first, "it has a new model")
    models = {name: installation.manifest(name) for name in ROSTER}
    assert models["telco"]["num_steps"] < models["bank"]["num_steps"] == NUM_STEPS
    assert len({model["run"] for model in models.values()}) == 1
    _with_all_blocks(installation)
