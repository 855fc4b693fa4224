"""deploy/compose.yaml as it is: it trains, serves, and goes on when something is lost.

The tests stand in the order of a federation's life and share one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_trial import CLIENTS, DAEMONS, STATE, Trial, blocks_used, eventually, uids
from engine import Engine
from reference import check_same, trained_here

pytestmark = pytest.mark.timeout(1500)

RECOVER_S = 120.0
STOP_S = 30
MOUNT_POINTS = {
    "/data",
    "/etc",
    "/etc/laser-vfl",
    "/etc/laser-vfl/certs",
    "/etc/laser-vfl/config.yaml",
}
"""What the engine itself makes to hang volumes and files into."""


@pytest.fixture(scope="module")
def trial(built: Engine) -> Iterator[Trial]:
    with Trial(built, "laser-vfl-test-trial") as trial:
        yield trial


@pytest.fixture(scope="module")
def trained(trial: Trial) -> Trial:
    trial.wait_for_run()
    return trial


def test_everybody_gets_healthy(trial: Trial) -> None:
    trial.wait_healthy()


def test_nobody_is_root_or_may_do_anything_special(trial: Trial) -> None:
    for name in DAEMONS:
        container = trial.container(name)
        assert uids(container) == {"10001"}
        status = dict(
            line.split(":", 1) for line in trial.read(name, "/proc/1/status").splitlines()
        )
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[key], 16) == 0, (name, key)
        assert status["NoNewPrivs"].strip() == "1"
        host = container.attrs["HostConfig"]
        assert not host["Privileged"]
        assert host["Memory"] > 0
        assert host["NanoCpus"] > 0
        assert host["RestartPolicy"]["Name"] == "unless-stopped"


def test_nobody_sees_anothers_keys_or_data(trial: Trial) -> None:
    """A volume of one party is in no container of another's; the authority's is in no daemon's."""
    mounted = {
        name: {mount["Name"] for mount in trial.container(name).attrs["Mounts"] if "Name" in mount}
        for name in DAEMONS
    }
    for name, volumes in mounted.items():
        own = {"certs", "state"} | ({"data"} if name in CLIENTS else set())
        assert volumes == {f"{trial.project}_{name}-{kind}" for kind in own}
        keys = trial.exec(name, "sh", "-c", "cd /etc/laser-vfl/certs && ls *.key")
        assert keys.split() == [f"{name}.key"]
    for name in DAEMONS:
        networks = set(trial.container(name).attrs["NetworkSettings"]["Networks"])
        assert networks == {f"{trial.project}_federation", f"{trial.project}_{name}"}


def test_training_finishes(trained: Trial) -> None:
    status = trained.status()
    assert status["last_outcome"] == "finished"
    assert status["members"] == list(CLIENTS)
    assert status["departures"] == []
    assert not status["training"]


def test_nothing_is_written_but_to_the_volume(trained: Trial) -> None:
    for name in DAEMONS:
        container = trained.container(name)
        assert {change["Path"] for change in container.diff() or []} <= MOUNT_POINTS
        script = "touch /x /usr/x /opt/laser-vfl/x /etc/laser-vfl/x /etc/laser-vfl/certs/x 2>&1"
        code, output = container.exec_run(["sh", "-c", script])
        assert code != 0
        assert output.decode().count("Read-only file system") == 5
        assert trained.exec(name, "sh", "-c", f"ls {STATE}").split()


def test_predictions_are_those_of_a_local_run(trained: Trial, tmp_path: Path) -> None:
    with trained_here(trained, tmp_path) as here:
        for name in CLIENTS:
            rows = trained.predict(name)
            assert blocks_used(rows) == set(CLIENTS)
            num_same = check_same(rows, here[name].predict(list(rows)))
            assert num_same > 0.5 * len(rows)


def test_the_rest_answer_without_one_that_was_killed_and_it_comes_back(trained: Trial) -> None:
    before = trained.predict("bank")
    shop = trained.container("shop")
    shop.kill()
    eventually(lambda: not trained.is_running("shop"), "shop is gone", RECOVER_S)
    without = trained.predict("bank")
    assert blocks_used(without) == {"bank", "telco", "clinic"}
    assert [row["error"] for row in without.values()] == [row["error"] for row in before.values()]
    shop.start()
    trained.wait_healthy(["shop"])
    assert blocks_used(trained.predict("shop")) >= {"shop"}
    again = eventually(lambda: _with_all(trained, "bank"), "shop is asked again", RECOVER_S)
    assert again == before


def test_a_network_that_is_cut_costs_one_block_and_heals(trained: Trial) -> None:
    network, telco = trained.federation_network(), trained.container("telco")
    before = trained.predict("bank")
    network.disconnect(telco)
    without = eventually(
        lambda: _with_blocks(trained, "bank", {"bank", "shop", "clinic"}),
        "bank does without telco",
        RECOVER_S,
    )
    assert [row["error"] for row in without.values()] == [row["error"] for row in before.values()]
    alone = eventually(
        lambda: _with_blocks(trained, "telco", {"telco"}), "telco answers alone", RECOVER_S
    )
    assert any(row["prediction"] is not None for row in alone.values())
    network.connect(telco, aliases=["telco"])
    assert (
        eventually(lambda: _with_all(trained, "bank"), "telco is asked again", RECOVER_S) == before
    )
    assert eventually(lambda: _with_all(trained, "telco"), "telco asks again", RECOVER_S)


def test_predictions_go_on_without_the_coordinator(trained: Trial) -> None:
    before = {name: trained.predict(name) for name in ("bank", "clinic")}
    coordinator = trained.container("coordinator")
    coordinator.kill()
    eventually(lambda: not trained.is_running("coordinator"), "it is gone", RECOVER_S)
    assert {name: trained.predict(name) for name in before} == before
    coordinator.start()
    trained.wait_healthy(["coordinator"])

    def everybody_is_back() -> bool:
        return all(client["up"] for client in trained.status()["clients"])

    eventually(everybody_is_back, "all clients are back", RECOVER_S)
    assert trained.status()["last_outcome"] == "finished"
    assert trained.predict("bank") == before["bank"]


def test_a_daemon_that_is_asked_to_stop_ends_well(trained: Trial) -> None:
    """The first process hands the signal on, and the exit code back."""
    for name in ("telco", "coordinator"):
        trained.container(name).stop(timeout=STOP_S)
        state = trained.container(name).attrs["State"]
        assert (state["Status"], state["ExitCode"]) == ("exited", 0)


def _with_blocks(trial: Trial, name: str, blocks: set[str]) -> dict[str, dict[str, object]]:
    """Return predictions if they used exactly these blocks; otherwise nothing."""
    rows = trial.predict(name)
    return rows if blocks_used(rows) == blocks else {}


def _with_all(trial: Trial, name: str) -> dict[str, dict[str, object]]:
    return _with_blocks(trial, name, set(CLIENTS))
