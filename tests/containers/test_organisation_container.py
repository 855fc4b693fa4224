"""A new organisation follows deploy/organisation/README.md, with the container, to real daemons."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from compose_trial import uids
from engine import ROOT, Engine

from laser_vfl import Predictor
from tests.support.daemons.harness import Site, eventually, free_address
from tests.support.daemons.organisation_host import Host, follow_the_page

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to the daemon's user"),
]

UID = "10001"
PROJECT = "laser-vfl-test-organisation"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "*cache*", ".hypothesis", "docs", "tests")
IMAGES = "laser-vfl-test-organisation"


class ContainerHost(Host):
    """A machine with Docker. Users and firewalls, which are the machine's own, are left out."""

    left_out = (
        *("groupadd ", "useradd ", "python3.11 ", "ln ", "ufw ", "iptables ", "/opt/", "runuser "),
        *("alias laser-vfl='runuser", "systemctl enable", "systemctl restart"),
    )

    def __init__(self, site: Site, files: Path, engine: Engine) -> None:
        bridge = engine.client.networks.get("bridge").attrs
        self.ip = str(bridge["IPAM"]["Config"][0]["Gateway"])
        super().__init__(site, files)
        self.engine = engine
        self.ports = {
            "PEER_PORT": self.advertised.rpartition(":")[2],
            "PREDICT_PORT": free_address().rpartition(":")[2],
            "METRICS_PORT": free_address().rpartition(":")[2],
        }
        self._laser_vfl = ""
        self.shell(f"docker tag laser-vfl {IMAGES}:0.2.0.dev0")

    def shell(self, command: str) -> str:
        script = f"cd {shlex.quote(str(self.files))} && {command}"
        return self.engine.run(["bash", "-c", script]).stdout

    def _do(self, command: str) -> None:
        if command.startswith("alias laser-vfl="):
            [self._laser_vfl] = re.findall(r"'(.*)'", command)
        elif command.startswith(("docker ", "LASER_VFL_TAG=", "sed ")):
            self.shell(command.replace("--tag laser-vfl:", f"--tag {IMAGES}:"))
        elif command == "cp env.example .env":
            super()._do(command)
            self._fill_in_env()
        else:
            super()._do(command)

    def owned(self, command: str) -> str:
        return re.sub(r" -([og]) laser-vfl", rf" -\1 {UID}", command)

    def _ask(self, words: list[str]) -> str:
        writes = words[:2] == ["certs", "request"]
        first = "docker compose run --rm tools" if writes else self._laser_vfl
        return self.shell(f"{first} {shlex.join(words)}")

    def _supervise(self, verb: str) -> None:
        if verb in ("stop", "start"):
            self.shell(f"docker compose {verb} client")

    def log(self) -> str:
        """What the daemon has said since the container was made."""
        return self.shell("docker compose logs client")

    def _fill_in_env(self) -> None:
        path = self.files / ".env"
        lines = dict(re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M))
        places = {key: self.here(f"{lines[key]}/").rstrip("/") for key in lines if "DIR" in key}
        lines |= places | self.ports | {"LASER_VFL_IMAGE": IMAGES, "COMPOSE_PROJECT_NAME": PROJECT}
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def config(self, filled_in: dict[str, Any]) -> dict[str, Any]:
        return filled_in


@pytest.fixture
def host(plain_site: Site, built: Engine) -> Iterator[ContainerHost]:
    copy = plain_site.path / "repository"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    host = ContainerHost(plain_site, copy / "deploy" / "organisation", built)
    try:
        yield host
    finally:
        host.shell("docker compose --profile '*' down --rmi all --timeout 10")


def test_ten_steps_and_what_comes_after(host: ContainerHost) -> None:
    follow_the_page(host)
    _check_what_is_published(host)
    _check_that_nobody_is_root(host)


def _check_what_is_published(host: ContainerHost) -> None:
    certs = host.etc / "certs"
    tls = {"ca": certs / "ca.pem", "cert": certs / "bank.pem", "key": certs / "bank.key"}
    ids = [line.split(",")[0] for line in (host.files / "test.csv").read_text().splitlines()[1:]]
    with Predictor(f"127.0.0.1:{host.ports['PREDICT_PORT']}", **tls) as predictor:

        def with_both() -> bool:
            answers = predictor.predict(ids)
            assert not any(answers.errors)
            return "bank,shop" in answers.block_names

        eventually(with_both, "bank asks shop")
    connection = HTTPConnection("127.0.0.1", int(host.ports["METRICS_PORT"]), timeout=10)
    connection.request("GET", "/metrics")
    assert b"laser_vfl_steps_total" in connection.getresponse().read()
    connection.close()


def _check_that_nobody_is_root(host: ContainerHost) -> None:
    container = host.engine.client.containers.get(f"{PROJECT}-client-1")
    assert uids(container) == {UID}
    assert container.attrs["Config"]["Image"] == f"{IMAGES}:0.2.0"
