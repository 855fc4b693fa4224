"""`retrain --config` refuses a file that the coordinator was not started with."""

from pathlib import Path

import pytest

from laser_vfl.cli.retrain import check_same
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import RUN_TERMS, CoordinatorConfig
from laser_vfl.core.errors import ConfigError

CONFIG = """
federation: churn
listen: 127.0.0.1:7000
state: ./state
clients: [bank, shop]
training:
  representation_dim: 8
  batch_size: 32
  epochs: 5
  seed: 7
"""


def config(path, text=CONFIG):
    path.write_text(text)
    return load_config(path, CoordinatorConfig)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "coordinator.yaml"


@pytest.fixture
def status(path):
    """What a coordinator says that was started with the file as it was at first."""
    started = config(path)
    clients = [{"client": name} for name in started.clients]
    settings = started.training.model_dump()
    return {"clients": clients, "settings": settings, "run_terms": started.run_terms()}


def test_the_same_file_is_taken(path, status):
    check_same(config(path), status, path)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("epochs: 5", "epochs: 50", "training.epochs is 50 in this file"),
        ("batch_size: 32", "batch_size: 64", "training.batch_size"),
        ("[bank, shop]", "[bank, shop, telco]", "clients is bank, shop, telco in this file"),
    ],
)
def test_an_edited_file_is_refused(path, status, old, new, key):
    edited = config(path, CONFIG.replace(old, new))
    with pytest.raises(ConfigError, match="restart the coordinator") as caught:
        check_same(edited, status, path)
    assert caught.value.message.startswith(key)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("alignment: hmac", "alignment is hmac in this file"),
        ("alignment_timeout_s: 60", "alignment_timeout_s"),
        ("max_people: 1000", "max_people is 1000 in this file"),
        ("max_total_people: 1000", "max_total_people"),
        ("start: {quorum: 2, after_s: 5}", "start is {"),
        ("retrain_every_s: 3600", "retrain_every_s is 3600.0 in this file"),
        ("quorum: 2", "quorum is 2 in this file"),
        ("on_lost_client: wait", "on_lost_client is wait in this file"),
        ("heartbeat_timeout_s: 20", "heartbeat_timeout_s"),
        ("restart_grace_s: 20", "restart_grace_s"),
        ("max_slowdown: 5", "max_slowdown is 5.0 in this file"),
    ],
)
def test_other_keys_that_decide_about_runs_are_compared(path, status, line, key):
    with pytest.raises(ConfigError) as caught:
        check_same(config(path, CONFIG + line + "\n"), status, path)
    assert caught.value.message.startswith(key)


def test_all_keys_that_differ_are_named(path, status):
    edited = config(path, CONFIG.replace("epochs: 5", "epochs: 50") + "alignment: hmac\n")
    with pytest.raises(ConfigError) as caught:
        check_same(edited, status, path)
    assert caught.value.message.startswith("training.epochs is 50")
    assert caught.value.message.endswith("; alignment differs, too")


def test_what_decides_nothing_about_runs_may_differ(path, status):
    check_same(config(path, CONFIG.replace("7000", "7001") + "log_level: debug\n"), status, path)


def test_every_key_is_compared_or_decides_nothing():
    others = {"federation", "listen", "state", "metrics_listen", "tls", "log_level"}
    compared = {"clients", "training", *RUN_TERMS}
    assert CoordinatorConfig.model_fields.keys() == compared | others


def test_the_seed_is_that_of_the_request(path, status):
    check_same(config(path, CONFIG.replace("seed: 7", "seed: 8")), status, path)


def test_a_coordinator_that_does_not_say_is_not_doubted(path, status):
    status |= {"settings": None, "run_terms": {}}
    check_same(config(path, CONFIG.replace("epochs: 5", "epochs: 50")), status, Path("x.yaml"))
