"""A file of the other kind of daemon is recognised, and said to be that."""

import pytest
import yaml

from laser_vfl.cli.daemon_config import (
    load_client_config,
    load_coordinator_config,
    load_daemon_config,
)
from laser_vfl.cli.forget import run_forget
from laser_vfl.cli.main import app
from laser_vfl.client.config import ClientConfig
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ConfigError

CLIENT = {
    "federation": "churn",
    "name": "bank",
    "listen": "127.0.0.1:0",
    "coordinator": "127.0.0.1:1",
    "state": "state",
    "data": {"train": "bank.csv", "id": "id"},
}
COORDINATOR = {
    "federation": "churn",
    "listen": "127.0.0.1:0",
    "state": "coordinator-state",
    "clients": ["bank", "shop"],
    "training": {"representation_dim": 8, "batch_size": 4, "epochs": 1, "seed": 1},
}


@pytest.fixture
def client(tmp_path):
    return _written(tmp_path / "bank.yaml", CLIENT)


@pytest.fixture
def coordinator(tmp_path):
    return _written(tmp_path / "coordinator.yaml", COORDINATOR)


def _written(path, config):
    path.write_text(yaml.safe_dump(config))
    return path


def test_each_is_read_as_what_it_is(client, coordinator):
    assert isinstance(load_daemon_config(client), ClientConfig)
    assert isinstance(load_daemon_config(coordinator), CoordinatorConfig)
    assert load_client_config(client).name == "bank"
    assert load_coordinator_config(coordinator).clients == ["bank", "shop"]


@pytest.mark.parametrize("command", ["client", "coordinator"])
def test_a_daemon_is_not_started_with_the_other_kind_of_file(
    tmp_path, client, coordinator, command, monkeypatch
):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    given = coordinator if command == "client" else client
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError) as caught:
        app([command, "run", "--config", str(given)], standalone_mode=False)
    other = "coordinator" if command == "client" else "client"
    assert caught.value.message == f"this is the configuration of a {other}"
    assert caught.value.where == str(given)
    assert f"`laser-vfl {other} run`" in caught.value.hint
    assert sorted(tmp_path.rglob("*")) == before


def test_forget_is_for_clients(coordinator):
    with pytest.raises(ConfigError, match="configuration of a coordinator"):
        run_forget(coordinator, None, list_count=True, as_json=False)


def test_a_mistake_in_a_file_of_the_right_kind_is_still_placed(tmp_path):
    path = _written(tmp_path / "bank.yaml", CLIENT | {"listn": "127.0.0.1:0"})
    with pytest.raises(ConfigError, match="listn") as caught:
        load_client_config(path)
    assert caught.value.hint == "did you mean listen?"
