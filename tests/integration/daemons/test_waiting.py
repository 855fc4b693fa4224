"""Who waits is patient and can be interrupted; who cannot go on says so."""

import re
import signal
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.daemons.harness import Process, Site, eventually
from tests.support.daemons.warm_start import COLD
from tests.support.data.people import People

ROSTER = ["bank", "shop"]


def _halves(num: int, shared: int) -> tuple["np.ndarray", "np.ndarray"]:
    """Who holds what when only the first `shared` samples are common and shop has all the rest."""
    places = np.arange(num)
    return places < shared, places >= 0


def test_with_no_labels_anywhere_all_end_with_the_reason(site: Site) -> None:
    people = People(40)
    for name in ROSTER:
        people.write(site.path, name, label=None)
    site.start_coordinator(site.coordinator_config(ROSTER, {}))
    clients = [
        site.start_client(site.client_config(name, data={"train": f"{name}_train.csv", "id": "id"}))
        for name in ROSTER
    ]
    for client in clients:
        assert client.wait_exit() == 7
        assert "no client has labels, so nothing can be learnt" in client.stderr


@pytest.mark.core
def test_a_peer_that_is_busy_with_its_own_samples_is_waited_for(site: Site) -> None:
    people = People(400)
    few, all_of_them = _halves(people.num, shared=16)
    people.write(site.path, "bank", held=few)
    people.write(site.path, "shop", held=all_of_them)
    training = {"epochs": 1, "batch_size": 8, "batching": "by_pattern", "step_timeout_s": 2.0}
    site.start_coordinator(site.coordinator_config(ROSTER, training))
    slow = {
        "representation": "tests.support.data.own_models:slow",
        "representation_options": {"delay_s": 0.1},
    }
    bank = site.start_client(site.client_config("bank"), "--exit-after-training")
    shop = site.start_client(site.client_config("shop", model=slow), "--exit-after-training")
    assert (bank.wait_exit(), shop.wait_exit()) == (0, 0)
    assert "trained 50 steps" in shop.stderr
    assert "go on without" not in shop.stderr
    steps = site.metrics("shop")
    assert steps[-1]["time"] - steps[0]["time"] > 3, "shop was to be busy for longer than a timeout"


def test_sigterm_reaches_a_client_that_waits_to_send(site: Site) -> None:
    """Shop has no labels and no training rows in common: it is through with sending at once."""
    people = People(900)
    places = np.arange(people.num)
    people.write(site.path, "bank", test_share=0.5, held=places >= 100)
    people.write(
        site.path, "shop", test_share=0.5, held=(places < 100) | (places >= 450), label=None
    )
    site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 20, "batch_size": 8}))
    slow = {
        "representation": "tests.support.data.own_models:slow",
        "representation_options": {"delay_s": 0.1},
    }
    both = {"test": "bank_test.csv", "train": "bank_train.csv", "id": "id", "label": "kind"}
    site.start_client(site.client_config("bank", model=slow, data=both))
    mine = {"test": "shop_test.csv", "train": "shop_train.csv", "id": "id"}
    shop = site.start_client(site.client_config("shop", data=mine))
    last = eventually(lambda: _finished(site, "shop"), "shop has trained", 60)
    assert last
    assert shop.terminate() == 0
    assert "the model is in" not in shop.stderr


def test_sigterm_while_a_client_still_loads_is_a_clean_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COLD, "1")
    People(40).write(site.path, "bank")
    bank = site.start_client(site.client_config("bank"))
    eventually(lambda: "libtorch" in Path(f"/proc/{bank.pid}/maps").read_text(), "torch is loading")
    bank.signal(signal.SIGTERM)
    assert bank.wait_exit() == 0


def test_the_demo_leaves_nobody_behind(tmp_path: Path) -> None:
    arguments = ["-m", "laser_vfl", "demo", "--clients", "2", "--epochs", "2000"]
    demo = Process("demo", arguments, tmp_path, "demo")
    try:
        demo.wait_for("shop pid")
        pids = [int(pid) for pid in re.findall(r"pid (\d+)", demo.stderr)]
        assert len(pids) == 3
        demo.signal(signal.SIGTERM)
        assert demo.wait_exit() == 128 + signal.SIGTERM
        eventually(lambda: not any(_is_ours(pid) for pid in pids), "all daemons have ended")
    finally:
        demo.kill()


def _finished(site: Site, name: str) -> bool:
    lines = site.metrics(name)
    return bool(lines) and lines[-1]["epoch"] == 19


def _is_ours(pid: int) -> bool:
    try:
        return sys.executable in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
