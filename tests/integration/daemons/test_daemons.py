"""The life of the daemons: ready, gathering, training, finished, stopped, lost and replaced."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from safetensors import safe_open

from laser_vfl.cli.health import run_health
from tests.support.daemons.harness import Process, Site, eventually, free_address, health
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
READY = re.compile(
    r"ready role=(coordinator|client) name=([a-z]+) address=127\.0\.0\.1:[1-9]\d*"
    r"( predict=127\.0\.0\.1:[1-9]\d*)? metrics=127\.0\.0\.1:[1-9]\d*\n"
)
SLOW = {
    "representation": "tests.support.data.own_models:slow",
    "representation_options": {"delay_s": 0.1},
}


class Trained:
    """A federation that has trained: bank stays up, shop has no labels and left."""

    def __init__(self, site: Site) -> None:
        people = People(120)
        people.write(site.path, "bank", test_share=0.3, label="flag")
        people.write(site.path, "shop", test_share=0.3, label=None)
        config = site.coordinator_config(ROSTER, {"epochs": 3}, log_level="debug")
        self.site = site
        self.coordinator = site.start_coordinator(config)
        data = {"train": "bank_train.csv", "test": "bank_test.csv", "id": "id", "label": "flag"}
        self.bank = site.start_client(site.client_config("bank", data=data))
        data = {"train": "shop_train.csv", "test": "shop_test.csv", "id": "id"}
        self.shop = site.start_client(
            site.client_config("shop", data=data), "--exit-after-training"
        )
        self.bank_address = self.bank.wait_ready()
        self.shop_exit_code = self.shop.wait_exit()
        self.bank.wait_for_served()

    def file(self, name: str) -> Path:
        return self.site.path / name


@pytest.fixture(scope="module")
def trained(shared_site: Site) -> Trained:
    return Trained(shared_site)


@pytest.mark.core
def test_the_ready_line_is_all_there_is_on_stdout(trained: Trained) -> None:
    for process in (trained.coordinator, trained.bank, trained.shop):
        assert READY.fullmatch(process.stdout), process.stdout
    assert trained.shop.stdout.startswith("ready role=client name=shop ")
    assert trained.coordinator.stdout.startswith("ready role=coordinator name=trial ")


def test_a_client_leaves_after_training_only_when_told_to(trained: Trained) -> None:
    assert trained.shop_exit_code == 0
    assert trained.bank.alive
    assert trained.coordinator.alive


@pytest.mark.core
def test_health_is_served_over_tls(trained: Trained) -> None:
    assert trained.site.authority is not None
    for name, address in (("bank", trained.bank_address), ("coordinator", trained.site.address)):
        with trained.site.authority.channel(address, name) as channel:
            assert health(channel) == "SERVING"


def test_the_health_command_shows_the_daemons_own_certificate(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, address in (("bank", trained.bank_address), ("coordinator", trained.site.address)):
        run_health(trained.file(f"{name}.yaml"), as_json=True)
        found = json.loads(capsys.readouterr().out)
        assert found == {"address": address, "status": "SERVING"}


@pytest.mark.core
def test_nobody_without_a_certificate_is_served(trained: Trained) -> None:
    with grpc.insecure_channel(trained.bank_address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            health(channel)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.core
def test_metrics_have_the_promised_keys(trained: Trained) -> None:
    promised = {"time", "epoch", "step", "loss", "steps_per_s", "bytes_per_s"}
    for name in ROSTER:
        lines = trained.site.metrics(name)
        assert lines
        assert all(promised <= line.keys() for line in lines)
        assert any(line["loss"] is not None for line in lines) == (name != "shop")
        assert lines[-1]["epoch"] == 2


@pytest.mark.core
def test_a_model_is_written_with_its_manifest_and_no_pickle(trained: Trained) -> None:
    for name in ROSTER:
        model = trained.file(f"{name}-state") / "model"
        with safe_open(model / "model.safetensors", framework="pt") as file:
            keys = set(file.keys())
        assert any(key.startswith("representation.") for key in keys)
        assert any(key.startswith("fusion.") for key in keys) == (name == "bank")
        manifest = json.loads((model / "manifest.json").read_text())
        assert manifest["client"] == name
        assert manifest["roster"] == ROSTER
        assert manifest["heads"] == ["bank"]
        assert manifest["num_steps"] == trained.site.metrics(name)[-1]["step"]
        assert (manifest["labels"] is None) == (name == "shop")
        assert manifest["encoding"]
    written = [p for p in trained.site.path.rglob("*") if p.is_file()]
    assert not [p for p in written if p.suffix in (".pt", ".pth", ".pkl", ".pickle", ".bin")]
    # A file of safetensors begins with a length, which may be any.
    others = [p for p in written if p.suffix != ".safetensors"]
    assert not [p for p in others if p.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"\x80\x05")]
    assert not [p for p in written if p.name.endswith(".tmp")]


@pytest.mark.core
def test_scores_have_the_promised_shape(trained: Trained) -> None:
    scores = json.loads((trained.file("bank-state") / "scores.json").read_text())
    assert scores["task"] == "binary"
    assert scores["overall"].keys() == {"accuracy", "f1", "auc"}
    assert list(scores["by_num_blocks"]) == ["1", "2"]
    assert set(scores["by_subset"]) == {"bank", "bank,shop"}
    entries = [*scores["by_num_blocks"].values(), *scores["by_subset"].values()]
    assert all(entry.keys() == {"accuracy", "f1", "auc", "num_samples"} for entry in entries)
    by_num = {num: entry["num_samples"] for num, entry in scores["by_num_blocks"].items()}
    assert sum(by_num.values()) == scores["num_samples"] > 0
    assert scores["by_subset"]["bank"]["num_samples"] == scores["num_samples"]
    assert scores["by_subset"]["bank,shop"]["num_samples"] == by_num["2"]
    assert not (trained.file("shop-state") / "scores.json").exists()


@pytest.mark.core
def test_the_coordinator_sees_neither_ids_nor_features(trained: Trained) -> None:
    state = trained.file("coordinator-state")
    seen = trained.coordinator.stderr + trained.coordinator.stdout
    seen += "".join(path.read_text("latin-1") for path in state.rglob("*") if path.is_file())
    header, *rows = (trained.file("bank_train.csv").read_text()).splitlines()
    assert header == "id,x0,x1,x2,x3,x4,flag"
    for row in rows:
        identifier, *features, _ = row.split(",")
        assert identifier not in seen
        assert not [value for value in features if value in seen]
    assert "person-" not in seen
    assert "a secret of the clients" not in seen


@pytest.mark.core
def test_sigterm_after_training_is_a_clean_end(trained: Trained) -> None:
    """Last in this group: it ends the daemons that the tests above look at."""
    assert trained.bank.terminate() == 0
    assert trained.coordinator.alive
    assert trained.coordinator.terminate() == 0


@pytest.mark.core
def test_nobody_logs_a_traceback(trained: Trained) -> None:
    for process in trained.site.processes:
        assert "Traceback" not in process.stderr, process.name


def test_training_starts_with_a_quorum_in_plaintext(plain_site: Site) -> None:
    site = plain_site
    roster = ["shop", "telco", "bank"]
    people = People(90)
    for name in ROSTER:
        people.write(site.path, name, test_share=0.3)
    start = {"quorum": 2, "after_s": 0.5}
    site.start_coordinator(site.coordinator_config(roster, {}, start=start))
    clients = []
    for name in ROSTER:
        data = {
            "train": f"{name}_train.csv",
            "test": f"{name}_test.csv",
            "id": "id",
            "label": "kind",
        }
        clients.append(site.start_client(site.client_config(name, data=data)))
    for client in clients:
        client.wait_for_served()
        with grpc.insecure_channel(client.wait_ready()) as channel:
            assert health(channel) == "SERVING"
        scores = json.loads((site.path / f"{client.name}-state" / "scores.json").read_text())
        assert set(scores["by_subset"]) == {client.name, "shop,bank"}
    assert [client.terminate() for client in clients] == [0, 0]


def test_clients_wait_for_a_coordinator_and_outlive_its_restart(site: Site) -> None:
    people = People(60)
    for name in ROSTER:
        people.write(site.path, name)
    site.address = address = free_address()
    bank = site.start_client(site.client_config("bank"), "--exit-after-training")
    assert bank.wait_ready() != address
    bank.wait_for("trying for 60 s")

    config = site.coordinator_config(ROSTER, {}) | {"listen": address}
    first = site.start_coordinator(config)
    first.wait_for("bank registered")
    bank.wait_for("waiting for shop")
    assert first.terminate() == 0

    second = site.start_coordinator(config)
    second.wait_for("bank registered")
    shop = site.start_client(site.client_config("shop"), "--exit-after-training")
    assert [bank.wait_exit(), shop.wait_exit()] == [0, 0]
    assert site.events() == ["aligned", "started", "finished"]


def test_a_second_daemon_of_the_same_name_is_refused(site: Site) -> None:
    people = People(60)
    for name in ROSTER:
        people.write(site.path, name)
    coordinator = site.start_coordinator(site.coordinator_config(ROSTER, {}))
    bank = site.start_client(site.client_config("bank"))
    bank.wait_for("waiting for shop")

    impostor = site.client_config("bank", state="./impostor-state", log_level="warning")
    refused = site.start_client(impostor, file="impostor")
    assert refused.wait_exit() == 6
    (line,) = refused.stderr.splitlines()
    assert '"bank" is connected already' in line
    assert bank.alive

    assert bank.terminate() == 0, "SIGTERM while gathering"
    again = site.start_client(site.client_config("bank"), "--exit-after-training")
    shop = site.start_client(site.client_config("shop"), "--exit-after-training")
    assert [again.wait_exit(), shop.wait_exit()] == [0, 0]
    assert coordinator.terminate() == 0


def test_a_second_daemon_in_one_state_directory_is_refused(site: Site) -> None:
    people = People(60)
    for name in ROSTER:
        people.write(site.path, name)
    site.start_coordinator(site.coordinator_config(ROSTER, {}))
    bank = site.start_client(site.client_config("bank"))
    bank.wait_for("waiting for shop")

    second = site.start_client(site.client_config("bank"), file="second")
    assert second.wait_exit() == 2
    (line,) = second.stderr.splitlines()
    assert "state: another daemon uses the directory" in line
    assert "stop that one first, or change `state`" in line

    bank.kill()  # the lock goes with it
    again = site.start_client(site.client_config("bank"))
    again.wait_for("waiting for shop")


def test_lost_clients_do_not_end_the_run_of_the_others(site: Site) -> None:
    roster = ["bank", "shop", "telco"]
    people = People(160)
    for name in roster:
        people.write(site.path, name)
    training = {"epochs": 60, "checkpoint_every": 2}
    coordinator = site.start_coordinator(site.coordinator_config(roster, training))
    survivor, leaver, victim = _start_slow(site, roster, 1, "--exit-after-training")
    checkpoints = site.path / "telco-state" / "runs"
    eventually(lambda: list(checkpoints.glob("*/checkpoints/*.json")), "telco has a checkpoint")
    victim.signal(signal.SIGKILL)
    assert victim.wait_exit() == -signal.SIGKILL
    coordinator.wait_for("lost telco: its connection was cut")
    assert leaver.terminate() == 0, "SIGTERM while training"
    coordinator.wait_for("lost shop: it left")
    site.hurry()
    assert survivor.wait_exit() == 0
    assert list(dict.fromkeys(site.events())) == ["aligned", "started", "changed", "finished"]
    assert re.search(r"generation \d has bank from \d+$", _reasons(site)[-1])

    whole = _num_steps(site, "bank")
    # Who comes after the end takes what it has learnt for its model, and nobody trains again.
    for name in roster[1:]:
        late = site.start_client(site.client_config(name, model=SLOW), "--exit-after-training")
        assert late.wait_exit() == 0
        assert "the others have finished without this client" in late.stderr
        num_steps = _num_steps(site, name)
        assert f"trained {num_steps} steps" in late.stderr
        assert 0 < num_steps < whole
    assert site.events()[-1] == "finished"
    assert coordinator.terminate() == 0


def test_training_goes_on_when_the_coordinator_is_stopped(site: Site) -> None:
    people = People(60)
    for name in ROSTER:
        people.write(site.path, name)
    coordinator = site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 10}))
    patience = {"coordinator_timeout_s": 8.0}
    clients = _start_slow(site, ROSTER, 1, "--exit-after-training", **patience)
    assert coordinator.terminate() == 0, "SIGTERM while training"
    for name in ROSTER:
        model = site.path / f"{name}-state" / "model" / "model.safetensors"
        eventually(model.exists, f"{name} has trained", 40)
    assert [client.wait_exit(20) for client in clients] == [0, 0]


def _num_steps(site: Site, name: str) -> int:
    """How many steps a client's model has learnt from."""
    manifest = json.loads((site.path / f"{name}-state" / "model" / "manifest.json").read_text())
    return int(manifest["num_steps"])


def _reasons(site: Site) -> list[str]:
    """Why the coordinator says that runs were stopped."""
    lines = (site.path / "coordinator-state" / "runs.jsonl").read_text().splitlines()
    return [line["reason"] for line in map(json.loads, lines) if "reason" in line]


def _start_slow(
    site: Site, roster: list[str], run: int, *arguments: str, **more: Any
) -> list[Process]:
    """Start a run that takes its time, and return when all are in the midst of it."""
    before = {name: len(site.metrics(name)) for name in roster}
    clients = [
        site.start_client(
            site.client_config(name, model=SLOW, log_level="error", **more), *arguments
        )
        for name in roster
    ]
    site.wait_for_event("started", times=run)
    for name in roster:
        eventually(lambda name=name: len(site.metrics(name)) > before[name], f"{name} trains", 30)
        last: dict[str, Any] = site.metrics(name)[-1]
        assert 0 < last["step"] < 200
    return clients


def _check_names(client: Process, lost: str) -> None:
    (line,) = client.stderr.splitlines()
    assert line.startswith(f"lost {lost}: ")
