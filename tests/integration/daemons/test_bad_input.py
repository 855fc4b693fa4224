"""Mistakes of one organisation: one line, the right exit code, and nobody else is harmed."""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from laser_vfl.transport.protocol import PROTOCOL_VERSION
from tests.support.daemons.harness import Authority, Process, Site, free_address
from tests.support.data.people import People

Config = dict[str, Any]


@dataclass(frozen=True)
class RunningFederation:
    """A coordinator and a good client that waits for `shop`, whom all bad clients pretend to be."""

    site: Site
    coordinator: Process
    bank: Process
    bank_address: str


@pytest.fixture(scope="module")
def running(shared_site: Site) -> RunningFederation:
    site = shared_site
    people = People(60)
    for name in ("bank", "shop"):
        people.write(site.path, name, test_share=0.3)
    coordinator = site.start_coordinator(site.coordinator_config(["bank", "shop"], {}))
    bank = site.start_client(site.client_config("bank"), "--exit-after-training")
    bank.wait_for("waiting for shop")
    return RunningFederation(site, coordinator, bank, bank.wait_ready())


@dataclass(frozen=True)
class Mistake:
    """How a good configuration is spoilt, and what is to be said about it."""

    exit_code: int
    says: str
    spoil: Callable[[Config, RunningFederation], object] = lambda config, running: None
    arguments: tuple[str, ...] = ()


def _table(
    transform: Callable[[list[str]], list[str]],
) -> Callable[[Config, RunningFederation], object]:
    """Train on a changed copy of the good table; `transform` gets its lines, header first."""

    def spoil(config: Config, running: RunningFederation) -> None:
        lines = (running.site.path / "shop_train.csv").read_text().splitlines()
        config["data"]["train"] = name = f"{config['state']}.csv"
        (running.site.path / name).write_text("\n".join(transform(lines)) + "\n")

    return spoil


def _set(path: str, value: Any) -> Callable[[Config, RunningFederation], object]:
    def spoil(config: Config, running: RunningFederation) -> None:
        *parents, last = path.split(".")
        for key in parents:
            config = config.setdefault(key, {})
        config[last] = value

    return spoil


def _foreign_authority(config: Config, running: RunningFederation) -> None:
    config["tls"] = Authority(running.site.path / "foreign-1").issue("shop")


def _untrusted_certificate(config: Config, running: RunningFederation) -> None:
    """It trusts the others, but they do not trust it."""
    foreign = Authority(running.site.path / "foreign-2").issue("shop")
    config["tls"] = foreign | {"ca": config["tls"]["ca"]}
    config["log_level"] = "error"  # it tries again, with a warning, before it gives up


def _no_certificate(config: Config, running: RunningFederation) -> None:
    path = running.site.path / "broken.pem"
    path.write_text("this is not a certificate\n")
    config["tls"] = config["tls"] | {"cert": str(path)}


def _damaged_certificate(config: Config, running: RunningFederation) -> None:
    path = running.site.path / "damaged.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    config["tls"] = config["tls"] | {"cert": str(path)}


def _damaged_ca(config: Config, running: RunningFederation) -> None:
    path = running.site.path / "damaged-ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    config["tls"] = config["tls"] | {"ca": str(path)}


def _key_of_another(config: Config, running: RunningFederation) -> None:
    assert running.site.authority is not None
    config["tls"] = config["tls"] | {"key": running.site.authority.issue("bank")["key"]}


def _unreachable(config: Config, running: RunningFederation) -> None:
    config.update(coordinator=free_address(), connect_timeout_s=1.0, log_level="error")


def _without_tls(config: Config, running: RunningFederation) -> None:
    del config["tls"]


def _away_from_loopback(config: Config, running: RunningFederation) -> None:
    del config["tls"]
    config.update(coordinator="192.0.2.7:7000")


MISTAKES = {
    "a number that is none": Mistake(
        2, r'bad\d+\.yaml:\d+:\d+: optimizer\.lr: .*"fast"', _set("optimizer", {"lr": "fast"})
    ),
    "a key that does not exist": Mistake(
        2, r"bad\d+\.yaml:\d+:\d+: .*optimiser", _set("optimiser", {"name": "adam"})
    ),
    "no secret": Mistake(2, "nowhere.secret: ", _set("id_secret_file", "nowhere.secret")),
    "an unknown model": Mistake(
        2, r'bad\d+\.yaml:\d+:\d+: model\.representation: .*"perceptron"',
        _set("model.representation", "perceptron"),
    ),
    "a model that cannot be imported": Mistake(
        2, r"bad\d+\.yaml:\d+:\d+: model\.representation: .*nowhere",
        _set("model.representation", "nowhere.models:factory"),
    ),
    "no such table": Mistake(3, "nothing.csv: ", _set("data.train", "nothing.csv")),
    "a missing column": Mistake(3, 'shop_train.csv: .*"customer"', _set("data.id", "customer")),
    "duplicate ids": Mistake(3, r"bad\d+\.csv: .*twice", _table(lambda lines: [*lines, lines[1]])),
    "an empty table": Mistake(3, r"bad\d+\.csv: .*no rows", _table(lambda lines: lines[:1])),
    "an empty file": Mistake(3, r"bad\d+\.csv: .*empty", _table(lambda lines: [])),
    "a label of one class": Mistake(
        3, r"bad\d+\.csv: .*one class",
        _table(lambda lines: [lines[0], *(x.rpartition(",")[0] + ",red" for x in lines[1:])]),
    ),
    "an id in both tables": Mistake(
        3, "shop_train.csv: .*also in", _set("data.test", "shop_train.csv")
    ),
    "a port in use": Mistake(
        4, "cannot listen on ", lambda c, s: c.update(listen=s.bank_address)
    ),
    "a coordinator that cannot be reached": Mistake(4, "coordinator", _unreachable),
    "no tls": Mistake(5, "no tls section", _without_tls),
    "plaintext beyond loopback": Mistake(
        5, "only on loopback", _away_from_loopback, ("--insecure",)
    ),
    "a missing certificate": Mistake(5, "nowhere.pem: ", _set("tls.cert", "nowhere.pem")),
    "a file that is no certificate": Mistake(5, "broken.pem: ", _no_certificate),
    "a damaged certificate": Mistake(5, "damaged.pem", _damaged_certificate),
    "a damaged authority": Mistake(5, "damaged-ca.pem", _damaged_ca),
    "the key of another certificate": Mistake(5, "do not belong together", _key_of_another),
    "a certificate of a foreign authority": Mistake(5, "certificate", _foreign_authority),
    "a certificate that the others do not trust": Mistake(
        5, "client's cert", _untrusted_certificate
    ),
    "another federation": Mistake(
        5, "spiffe://trial/client/shop, not spiffe://other/", _set("federation", "other")
    ),
    "another's certificate": Mistake(5, "the certificate names ", _set("name", "museum")),
    "another width": Mistake(
        6, r"bad\d+\.yaml:\d+:\d+: representation_dim: ", _set("representation_dim", 9)
    ),
    "a model of another width": Mistake(
        6, r"bad\d+\.yaml:\d+:\d+: model\.representation: .*width 9",
        _set("model.representation", "tests.support.data.own_models:too_wide"),
    ),
}  # fmt: skip


class BadClients:
    """Starts clients with a mistake, each one ahead of its test, for there are two cores."""

    def __init__(self, running: RunningFederation) -> None:
        self._standing = running
        self._processes: dict[str, Process] = {}

    def get(self, name: str) -> Process:
        names = list(MISTAKES)
        here = names.index(name)
        for each in names[here : here + 2]:
            if each not in self._processes:
                self._processes[each] = self._start(f"bad{names.index(each)}", MISTAKES[each])
        return self._processes[name]

    def _start(self, file: str, mistake: Mistake) -> Process:
        site = self._standing.site
        config = site.client_config("shop", state=file, log_level="warning", connect_timeout_s=5.0)
        mistake.spoil(config, self._standing)
        return site.start_client(config, *mistake.arguments, file=file)


@pytest.fixture(scope="module")
def bad_clients(running: RunningFederation) -> BadClients:
    return BadClients(running)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_its_own_daemon_and_no_other(
    name: str, running: RunningFederation, bad_clients: BadClients
) -> None:
    _check(bad_clients.get(name), MISTAKES[name])
    _check_unharmed(running)


def test_a_yaml_typo_is_placed(running: RunningFederation) -> None:
    path = running.site.path / "typo.yaml"
    path.write_text("federation: trial\nname: shop\ndata: {train: shop.csv, id: id\n")
    process = running.site.run("typo", "client", "run", "--config", "typo.yaml")
    _check(process, Mistake(2, r"^typo\.yaml:\d+:\d+: "))


def test_a_configuration_that_is_not_there(running: RunningFederation) -> None:
    process = running.site.run("absent", "client", "run", "--config", "absent.yaml")
    _check(process, Mistake(2, r"^absent\.yaml: no such file"))


def test_a_client_of_another_protocol_version(running: RunningFederation) -> None:
    """A real client whose contract is version 99."""
    site = running.site
    path = site.write("newer", site.client_config("shop", log_level="warning"))
    program = (
        "import laser_vfl.transport.protocol as protocol; protocol.PROTOCOL_VERSION = 99;"
        "from laser_vfl.cli import main; main()"
    )
    process = Process(
        "newer", ["-c", program, "client", "run", "--config", path.name], site.path, "newer"
    )
    site.processes.append(process)
    _check(process, Mistake(6, f"protocol version {PROTOCOL_VERSION}, .* speaks 99"), started=True)
    _check_unharmed(running)


@pytest.mark.parametrize(
    ("changes", "arguments", "exit_code", "says"),
    [
        ({"clients": ["bank", "bank"]}, [], 2, r"^second\.yaml:\d+:\d+: clients\[?.*already"),
        ({"listen": "IN USE"}, [], 4, "cannot listen on "),
        ({"tls": None}, [], 5, "no tls section"),
        ({"tls": None, "listen": "0.0.0.0:0"}, ["--insecure"], 5, "only on loopback"),
        ({"tls": {"ca": "a.pem", "cert": "b.pem", "key": "c.key"}}, [], 5, "a.pem: "),
    ],
    ids=["a name twice", "port in use", "no tls", "insecure beyond loopback", "no certificates"],
)
def test_mistakes_at_a_coordinator(
    changes: Config, arguments: list[str], exit_code: int, says: str, running: RunningFederation
) -> None:
    site = running.site
    config = site.coordinator_config(
        ["bank", "shop"], {}, log_level="warning", state="./other-state"
    )
    config.update(changes)
    if config["listen"] == "IN USE":
        config["listen"] = site.address
    site.write("second", {key: value for key, value in config.items() if value is not None})
    process = site.run("second", "coordinator", "run", "--config", "second.yaml", *arguments)
    _check(process, Mistake(exit_code, says))
    _check_unharmed(running)


def test_a_port_that_another_program_uses(running: RunningFederation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = running.site.client_config("shop", log_level="warning", listen=address)
        process = running.site.start_client(config, file="bad")
        _check(process, Mistake(4, f"cannot listen on {address}"))


def test_in_the_end_training_completes(running: RunningFederation) -> None:
    """Last in this file: after all those mistakes a good second client joins."""
    _check_unharmed(running)
    site = running.site
    shop = site.start_client(site.client_config("shop"), "--exit-after-training")
    assert shop.wait_exit() == 0
    assert running.bank.wait_exit() == 0
    assert running.coordinator.alive
    assert site.events() == ["aligned", "started", "finished"]
    assert "Traceback" not in running.coordinator.stderr + running.bank.stderr


def _check(process: Process, mistake: Mistake, started: bool | None = None) -> None:
    assert process.wait_exit() == mistake.exit_code
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    assert re.search(mistake.says, lines[0]), lines[0]
    assert "Traceback" not in lines[0]
    if started is not None:
        assert process.stdout.startswith("ready ") == started


def _check_unharmed(running: RunningFederation) -> None:
    assert running.coordinator.alive
    assert running.bank.alive
    assert running.site.events() == []
