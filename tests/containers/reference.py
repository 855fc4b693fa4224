"""The same federation without containers: plain processes here, on what the containers have."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from compose_trial import CLIENTS, STATE, Trial, eventually
from engine import ROOT

from laser_vfl import Predictor
from laser_vfl.local_federation import LocalFederation
from laser_vfl.remote.calls import client_access
from laser_vfl.remote.operations import client_status
from laser_vfl.transport.prediction_replies import Predictions

TRAIN_S = 300.0


@contextmanager
def trained_here(trial: Trial, directory: Path) -> Iterator[dict[str, "Asked"]]:
    """Train on the tables of a trial, with its settings and seed; give whom to ask.

    The order of samples follows from a key of each client, so these are the containers' too.
    """
    configs = {name: _config(name) for name in CLIENTS}
    for name in CLIENTS:
        state = directory / f"{name}-state"
        state.mkdir(parents=True)
        (state / "own.key").write_bytes(_file(trial, name, f"{STATE}/own.key"))
        for table in ("train", "test"):
            path = directory / f"{name}_{table}.npz"
            path.write_bytes(_file(trial, name, f"/data/{table}.npz"))
    with LocalFederation(directory, insecure=False) as federation:
        coordinator = _read("coordinator") | {
            "listen": "127.0.0.1:0",
            "state": "./coordinator-state",
        }
        address = federation.start_coordinator(coordinator)
        federation.start_clients(
            {name: config | {"coordinator": address} for name, config in configs.items()}, stay=True
        )
        asked = {
            name: Asked(federation.predict_addresses[name], directory / "certs", name)
            for name in CLIENTS
        }
        for one in asked.values():
            eventually(one.has_model, "the local run has finished", TRAIN_S)
        yield asked


class Asked:
    """A client here that is asked as its owner."""

    def __init__(self, address: str, certs: Path, name: str) -> None:
        self._address = address
        self._tls: dict[str, Any] = {
            "ca": certs / "ca.pem",
            "cert": certs / f"{name}.pem",
            "key": certs / f"{name}.key",
        }

    def has_model(self) -> bool:
        access = client_access(self._address, **self._tls)
        return client_status(self._address, access)["model"] is not None

    def predict(self, ids: list[str]) -> Predictions:
        with Predictor(self._address, deadline=30.0, **self._tls) as predictor:
            return predictor.predict(ids)


def check_same(rows: dict[str, dict[str, Any]], found: Predictions) -> int:
    """Check rows that containers gave against what was predicted here; return how many there are.

    Both run the same release of torch on the same machine, so they differ by rounding at most.
    """
    num_same = 0
    for index, sample in enumerate(found.ids):
        row = rows[sample]
        if found.errors[index]:
            assert row["error"], (sample, row, found.errors[index])
            continue
        assert row["error"] is None, (sample, row)
        assert row["blocks"] == found.block_names[index], sample
        assert row["prediction"] == found.labels[index], sample
        given = [row[f"prob_{digit}"] for digit in range(10)]
        np.testing.assert_allclose(given, found.probabilities[index], rtol=1e-5, atol=1e-6)
        num_same += 1
    return num_same


def _read(name: str) -> dict[str, Any]:
    text = (ROOT / "deploy" / "digits" / f"{name}.yaml").read_text()
    config = dict(yaml.safe_load(text))
    del config["tls"]
    return config


def _config(name: str) -> dict[str, Any]:
    config = _read(name)
    del config["advertise"]
    tables = {table: f"{name}_{table}.npz" for table in ("train", "test")}
    return config | {
        "listen": "127.0.0.1:0",
        "predict_listen": "127.0.0.1:0",
        "state": f"./{name}-state",
        "data": config["data"] | tables,
        "threads": 1,
    }


def _file(trial: Trial, name: str, path: str) -> bytes:
    """Return a file of a container, as the engine copies it out."""
    parts, _ = trial.container(name).get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member is not None
        return member.read()
