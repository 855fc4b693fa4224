"""`from laser_vfl import Client`: a federation in Python, in one process or from scripts."""

import asyncio
import copy
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from laser_vfl import Client, Predictor
from laser_vfl.client.tables.block import load_block
from laser_vfl.core.errors import (
    AddressError,
    ConfigError,
    DataError,
    IdentityError,
    LaserError,
    NotReady,
    TrainingStopped,
)
from laser_vfl.data import read_secret
from laser_vfl.remote.operations import approve_run, coordinator_status, reject_run
from laser_vfl.transport.prediction_replies import Predictions
from tests.support.daemons.harness import Site, eventually, free_address
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
WIDTH = 8
IDS = [f"person-{i:05d}" for i in range(63, 90)]


class Deep(nn.Module):
    """A representation model that only exists in this file."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)  # type: ignore[no-any-return]


def _head() -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 3))


class Pair:
    """Two clients of this process, trained together."""

    def __init__(self, site: Site) -> None:
        _write_tables(site)
        site.start_coordinator(site.coordinator_config(ROSTER, {}))
        self.site = site
        self.paths = {name: _write_config(site, name) for name in ROSTER}
        self.given = Deep(), _head()
        self.before = [copy.deepcopy(module.state_dict()) for module in self.given]
        representation, fusion = self.given
        self.bank = Client.from_config(
            self.paths["bank"], representation=representation, fusion=fusion
        )
        self.shop = Client.from_config(self.paths["shop"])
        self.fit()

    def fit(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            for fitted in (pool.submit(self.bank.fit), pool.submit(self.shop.fit)):
                fitted.result(60)

    def close(self) -> None:
        self.bank.close()
        self.shop.close()


@pytest.fixture(scope="module")
def pair(shared_site: Site) -> Iterator[Pair]:
    pair = Pair(shared_site)
    yield pair
    pair.close()


@pytest.mark.core
def test_predictions_are_numpy_and_equal_the_models_own_forward(pair: Pair) -> None:
    answer = pair.bank.predict(IDS, deadline=10.0)
    assert isinstance(answer, Predictions)
    assert answer.labels.shape == (27,)
    assert answer.probabilities.shape == (27, 3)
    assert answer.blocks.shape == (27, 2)
    assert answer.blocks.all()
    assert answer.labels.tolist() == answer.classes[answer.probabilities.argmax(axis=1)].tolist()
    assert set(answer.labels) <= {"red", "green", "blue"}

    bank, shop = _models(pair, "bank", Deep(), _head()), _models(pair, "shop", None, None)
    with torch.inference_mode():
        own, theirs = (
            models["representation"](_rows(pair, name))
            for name, models in (("bank", bank), ("shop", shop))
        )
        expected = bank["fusion"]((own + theirs) / 2).softmax(dim=1)
    np.testing.assert_allclose(answer.probabilities, expected.numpy(), atol=1e-6)


def test_the_given_modules_are_not_trained_themselves(pair: Pair) -> None:
    for given, before in zip(pair.given, pair.before, strict=True):
        assert all(torch.equal(given.state_dict()[key], before[key]) for key in before)
    trained = _models(pair, "bank", Deep(), _head())["representation"].state_dict()
    assert not all(torch.equal(trained[key], pair.before[0][key]) for key in trained)


def test_it_works_where_an_event_loop_runs_already(pair: Pair) -> None:
    expected = pair.bank.predict(IDS[:3], deadline=10.0)

    async def cell() -> Predictions:
        assert asyncio.get_running_loop().is_running()
        return pair.bank.predict(IDS[:3], deadline=10.0)

    answer = asyncio.run(cell())
    np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-6)


def test_applications_reach_it_from_outside(pair: Pair) -> None:
    expected = pair.bank.predict(IDS, deadline=10.0)
    tls = pair.site.authority.issue("bank/crm")
    with Predictor(pair.bank.predict_address, deadline=10.0, **tls) as predictor:
        answer = predictor.predict(IDS)
        status = predictor.status()
    np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-6)
    assert answer.run == expected.run == status["model"]["run"]
    assert status["client"] == "bank"


@pytest.mark.core
def test_features_can_come_with_the_request(pair: Pair) -> None:
    answer = pair.bank.predict(["somebody"], deadline=10.0, features=np.ones((1, 5)))
    assert answer.block_names == ["bank"]
    with pytest.raises(DataError):
        pair.bank.predict(["somebody"], features=np.ones((1, 4)))
    with pytest.raises(LaserError):
        pair.bank.predict(IDS, deadline=0.0)


@pytest.mark.core
def test_many_threads_may_predict_at_once(pair: Pair) -> None:
    right = pair.bank.predict(IDS, deadline=10.0)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: pair.bank.predict([one], deadline=10.0), IDS * 4))
    found = np.concatenate([answer.probabilities for answer in answers[: len(IDS)]])
    np.testing.assert_allclose(found, right.probabilities, atol=1e-5)
    assert all(answer.blocks.all() for answer in answers)


def test_predictions_leave_nothing_behind(pair: Pair) -> None:
    def num_futures() -> int:
        gc.collect()
        return sum(type(thing) is Future for thing in gc.get_objects())

    pair.bank.predict(IDS[:1])
    before = num_futures()
    for _ in range(50):
        pair.bank.predict(IDS[:1])
    assert num_futures() <= before + 10


def test_it_can_be_fitted_again(pair: Pair) -> None:
    before = pair.bank.predict(IDS, deadline=10.0)
    with ThreadPoolExecutor(1) as pool:
        fitted = pool.submit(pair.bank.fit)
        decided = pair.site.address, pair.site.operator_access(), "bank"
        _wait_for_request(pair)
        reject_run(*decided)
        with pytest.raises(TrainingStopped, match="rejected"):
            fitted.result(30)
        fitted = pool.submit(pair.bank.fit)
        _wait_for_request(pair)
        approve_run(*decided)
        fitted.result(60)
    after = pair.bank.predict(IDS, deadline=10.0)
    assert after.run != before.run
    assert after.blocks.all(), after.peers
    eventually(lambda: pair.shop.predict(IDS).run == after.run, "shop was in it too")


def _wait_for_request(pair: Pair) -> None:
    where = pair.site.address, pair.site.operator_access()
    eventually(lambda: coordinator_status(*where)["requests"] == ["bank"], "bank asks for a run")


def test_a_closed_client_leaves_nothing_and_can_be_used_again(pair: Pair) -> None:
    """After it, this federation is gone."""
    before = pair.bank.predict(IDS, deadline=10.0)
    address = pair.bank.predict_address
    assert _is_listening(address)
    pair.close()
    pair.close()
    assert not _is_listening(address)
    with Predictor(address) as predictor, pytest.raises(AddressError):
        predictor.predict(IDS)
    eventually(
        lambda: not [t.name for t in threading.enumerate() if t.name.startswith("serving")],
        "no thread of a client is left",
        10,
    )
    again = pair.bank.predict(IDS, deadline=10.0)
    assert (again.run, set(again.block_names)) == (before.run, {"bank"})
    pair.close()


def test_with_a_model_it_gives_up_in_time_too(pair: Pair) -> None:
    """After the test above, with what it left in the state directory."""
    pair.site.address = free_address()
    path = _write_config(pair.site, "bank", connect_timeout_s=1.0)
    client = Client.from_config(path, representation=Deep(), fusion=_head())
    with ThreadPoolExecutor(1) as pool, client:
        fitted = pool.submit(client.fit)
        with pytest.raises(AddressError):
            fitted.result(10)
        assert client.predict(IDS).errors == (None,) * len(IDS)


def test_a_model_of_given_modules_says_so_where_they_are_not_given(pair: Pair) -> None:
    """After the test above, with the same state directory."""
    path = pair.site.path / "bank.yaml"
    for given, missing in (({}, "representation"), ({"representation": Deep()}, "fusion")):
        with (
            Client.from_config(path, **given) as client,
            pytest.raises(DataError, match=f"with a {missing} given in Python; give it again"),
        ):
            client.start()


def test_closing_ends_a_fit_that_waits(site: Site) -> None:
    _write_tables(site)
    coordinator = site.start_coordinator(site.coordinator_config(ROSTER, {}))
    client = Client.from_config(_write_config(site, "bank"))
    with ThreadPoolExecutor(1) as pool:
        fitted = pool.submit(client.fit)
        coordinator.wait_for("bank registered")
        client.close()
        with pytest.raises((LaserError, CancelledError)):
            fitted.result(10)


def test_without_a_coordinator_it_gives_up_in_time(site: Site) -> None:
    _write_tables(site)
    site.address = free_address()
    path = _write_config(site, "bank", connect_timeout_s=1.0)
    with Client.from_config(path) as client:
        started = time.monotonic()
        with pytest.raises(AddressError):
            client.fit()
        assert 0.5 < time.monotonic() - started < 15
        with pytest.raises(NotReady):
            client.predict(IDS)
        with pytest.raises(AddressError):
            client.fit()


def test_what_is_wrong_is_an_error_of_ours(site: Site) -> None:
    _write_tables(site)
    site.address = free_address()
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        Client.from_config(site.path / "absent.yaml")
    config = _write_config(site, "bank", nmae="bank")
    with pytest.raises(ConfigError, match="nmae: unknown key"):
        Client.from_config(config)
    config = _write_config(site, "bank", data={"train": "absent.csv", "id": "id"})
    with Client.from_config(config) as client, pytest.raises(DataError, match=r"absent\.csv"):
        client.fit()
    config = _write_config(site, "bank", tls=None)
    with Client.from_config(config) as client, pytest.raises(IdentityError, match="no tls"):
        client.fit()
    taken = site.start_coordinator(site.coordinator_config(["bank"], {})).wait_ready()
    config = _write_config(site, "bank", predict_listen=taken)
    with Client.from_config(config) as client, pytest.raises(AddressError, match="cannot listen"):
        client.start()
    config = _write_config(site, "bank")
    wide = nn.Linear(5, WIDTH + 1)
    with Client.from_config(config, representation=wide) as client, pytest.raises(LaserError):
        client.fit()
    config = _write_config(site, "bank", federation="another")
    with Client.from_config(config) as client, pytest.raises(IdentityError, match="another"):
        client.fit()


SCRIPT = """
import json, sys
from torch import nn
from laser_vfl import Client

client = Client.from_config("bank.yaml", representation=nn.Linear(5, 8), fusion=nn.Linear(8, 3))
client.fit()
answer = client.predict(json.loads(sys.argv[1]), deadline=10.0)
print(json.dumps({"labels": answer.labels.tolist(), "blocks": answer.block_names}))
"""
"""It does not close the client, as scripts will."""


def test_a_script_trains_with_a_daemon_and_ends_by_itself(site: Site) -> None:
    _write_tables(site)
    (site.path / "script.py").write_text(SCRIPT)
    site.start_coordinator(site.coordinator_config(ROSTER, {}))
    _write_config(site, "bank")
    shop = site.start_client(_config(site, "shop"))
    done = subprocess.run(
        [sys.executable, "script.py", json.dumps(IDS)],
        cwd=site.path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said = json.loads(done.stdout)
    assert said["blocks"] == ["bank,shop"] * len(IDS)
    assert set(said["labels"]) <= {"red", "green", "blue"}
    assert shop.alive
    assert site.events() == ["aligned", "started", "finished"]


AT_THE_END = """
import asyncio, sys, threading
from concurrent.futures import thread
from laser_vfl.client import python_api

async def work():
    while not thread._shutdown:
        await asyncio.sleep(0)
    print("the loop runs without threads", file=sys.stderr)

python_api._run(asyncio.to_thread(print, "at work", flush=True)).result()
python_api._run(work())
"""


def test_a_script_that_ends_stops_its_clients_before_their_threads_are_taken_away() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "at work\n")


def _write_tables(site: Site) -> None:
    people = People(90)
    for name in ROSTER:
        people.write(site.path, name, p_hold=1.0, test_share=0.3)


def _config(site: Site, name: str, **more: Any) -> dict[str, Any]:
    data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id", "label": "kind"}
    return site.client_config(name, **{"data": data, **more})


def _write_config(site: Site, name: str, **more: Any) -> Path:
    config = _config(site, name, **more)
    return site.write(name, {key: value for key, value in config.items() if value is not None})


def _rows(pair: Pair, name: str) -> torch.Tensor:
    """The test rows of a client as its model takes them, in the order of IDS."""
    config = getattr(pair, name).config
    block = load_block(config, read_secret(config.id_secret_file))
    assert block.test is not None
    lines = (pair.site.path / f"{name}_test.csv").read_text().splitlines()[1:]
    order = np.argsort([line.split(",")[0] for line in lines])
    return block.test.inputs[torch.from_numpy(order)]


def _models(
    pair: Pair, name: str, representation: nn.Module | None, fusion: nn.Module | None
) -> nn.ModuleDict:
    """The published parameters of a client in modules made here."""
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, WIDTH))
    models = nn.ModuleDict(
        {"representation": representation or mlp, "fusion": fusion or nn.Linear(WIDTH, 3)}
    )
    stored = load_file(pair.site.path / f"{name}-state" / "model" / "model.safetensors")
    models.load_state_dict(stored)
    return models.eval()


def _is_listening(address: str) -> bool:
    port = int(address.rpartition(":")[2])
    connections = psutil.Process().net_connections("tcp")
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
