"""deploy/compose.observe.yaml: a Prometheus in a container reads every daemon, and no peer does.

Its image is made of the program that is installed here. Grafana is left out: there is no image of
it where no registry can be reached.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from compose_trial import CLIENTS, COMPOSE, DAEMONS, Trial, eventually, uids
from engine import Engine

from tests.support.daemons.harness import free_address
from tests.support.observability.prometheus_server import PROGRAM, Prometheus, needs_prometheus

pytestmark = [pytest.mark.timeout(900), needs_prometheus]

IMAGE = "laser-vfl-test-prometheus"
NOBODY = 65534
"""As whom the image that this one stands in for runs."""
DOCKERFILE = f"""
FROM python:3.11-slim
COPY prometheus /bin/prometheus
RUN install -d -o {NOBODY} -g {NOBODY} /prometheus
USER {NOBODY}
ENTRYPOINT ["/bin/prometheus"]
"""
METRICS_PORT = 9464
WITHIN_S = 120.0
IS_OPEN = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
    print("open")
except OSError as error:
    print(type(error).__name__)
"""


@dataclass(frozen=True)
class Observed:
    trial: Trial
    prometheus: Prometheus


@pytest.fixture(scope="module")
def observed(built: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    _make_image(built, tmp_path_factory.mktemp("prometheus"))
    address = free_address()
    port = address.rpartition(":")[2]
    environment = {**built.environment, "PROMETHEUS_IMAGE": IMAGE, "PROMETHEUS_PORT": port}
    engine = replace(built, environment=environment)
    override = COMPOSE.with_name("compose.observe.yaml")
    with Trial(engine, "laser-vfl-test-observed", override, without=["grafana"]) as trial:
        yield Observed(trial, Prometheus(address))


def _make_image(engine: Engine, directory: Path) -> None:
    assert PROGRAM is not None
    shutil.copy(PROGRAM, directory / "prometheus")
    (directory / "Dockerfile").write_text(DOCKERFILE)
    engine.run(["docker", "build", "--quiet", "--tag", IMAGE, str(directory)])


def test_prometheus_reads_every_daemon(observed: Observed) -> None:
    def everybody_is_read() -> bool:
        found = observed.prometheus.results("up")
        return {one["metric"]["instance"]: one["value"][1] for one in found} == dict.fromkeys(
            DAEMONS, "1"
        )

    eventually(everybody_is_read, "prometheus reads all", WITHIN_S)
    alerts = observed.prometheus.ask("rules")["groups"][0]["rules"]
    assert alerts
    assert all(alert["health"] in ("ok", "unknown") for alert in alerts)


def test_it_sees_the_run(observed: Observed) -> None:
    def steps() -> dict[str, float]:
        found = observed.prometheus.results("laser_vfl_steps_total")
        return {one["metric"]["instance"]: float(one["value"][1]) for one in found}

    eventually(lambda: min(steps().values(), default=0) > 0, "steps are counted", WITHIN_S)
    assert set(steps()) == set(CLIENTS)


def test_no_peer_can_read_anothers_metrics(observed: Observed) -> None:
    trial = observed.trial
    for name, by in (("bank", "shop"), ("coordinator", "clinic")):
        networks = trial.container(name).attrs["NetworkSettings"]["Networks"]
        for network, found in networks.items():
            what = trial.exec(by, "python", "-c", IS_OPEN, found["IPAddress"], str(METRICS_PORT))
            assert what.strip() != "open", (name, network)
        own = networks[f"{trial.project}_{name}"]["IPAddress"]
        assert trial.exec(name, "python", "-c", IS_OPEN, own, str(METRICS_PORT)).strip() == "open"


def test_it_has_no_rights(observed: Observed) -> None:
    container = observed.trial.container("prometheus")
    host = container.attrs["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert uids(container) == {str(NOBODY)}
