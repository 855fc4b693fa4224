"""A new organisation follows deploy/organisation/README.md and joins real daemons.

What needs root, Docker or systemd is not run; the test stands in for systemd, with the command of
the unit.
"""

import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml
from harness import Process, Site, eventually, free_address
from people import People

DEPLOY = Path(__file__).parents[2] / "deploy" / "organisation"
UNIT = "laser-vfl-client"
LEFT_OUT = {"groupadd", "useradd", "docker", "alias", "python3.11", "ln", "ufw", "iptables"}
"""What only root or a machine with Docker can do."""
LEFT_OUT_BEGINNINGS = ("/opt/", "runuser", "LASER_VFL_TAG=", "sed -i")
FILE_COMMANDS = {"install", "mv", "rm", "tar", "cp"}


class Host:
    """The bank's machine in a directory: it does what the page says, where it can."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.coordinator = free_address()
        self.files = site.path / "files"
        """Where the page is read, as its reader does."""
        shutil.copytree(DEPLOY, self.files)
        self.done: list[str] = []
        self.said = ""
        for place in ("etc/laser-vfl", "etc/systemd/system", "srv", "var/lib", "root"):
            (site.path / place).mkdir(parents=True)

    @property
    def etc(self) -> Path:
        return self.site.path / "etc/laser-vfl"

    @property
    def daemon(self) -> Process:
        return [process for process in self.site.processes if process.name == UNIT][-1]

    def here(self, text: str) -> str:
        """Put what a text says of the machine into the directory."""
        text = re.sub(r"(?<![\w/.])/(etc|srv|var/lib|root)/", rf"{self.site.path}/\1/", text)
        return text.replace("coordinator.example.org:7000", self.coordinator)

    def follow(self, commands: list[str]) -> None:
        for command in commands:
            self._do(command)
            self.done.append(command)

    def _do(self, command: str) -> None:
        first = command.split()[0]
        if first in LEFT_OUT or command.startswith(LEFT_OUT_BEGINNINGS):
            return
        if first == "systemctl":
            self._supervise(command.split()[1])
        elif first == "laser-vfl":
            self.said = self._ask(shlex.split(self.here(command))[1:])
        else:
            assert first in FILE_COMMANDS, f"can this be run in a test? {command}"
            words = re.sub(r" -[og] \S+", "", self.here(command))
            subprocess.run(shlex.split(words), cwd=self.files, check=True, timeout=30)

    def _ask(self, words: list[str]) -> str:
        if words[:2] == ["certs", "issue"]:
            return self._sign(words)
        process = self.site.run(f"command-{len(self.done)}", *words)
        assert process.wait_exit() == 0, (words, process.stdout, process.stderr)
        return process.stdout

    def _sign(self, words: list[str]) -> str:
        """The keeper of the authority is sent the request, and sends what it makes of it."""
        place = self.etc / "certs"
        found = [place / "next/bank.csr", place / "bank.csr"]
        keeper = self.site.path
        shutil.copy(next(path for path in found if path.exists()), keeper)
        (keeper / "bank.pem").unlink(missing_ok=True)
        process = self.site.run(f"keeper-{len(self.done)}", *words)
        assert process.wait_exit() == 0, process.stderr
        for name in ("bank.pem", "certs/ca.pem"):
            shutil.copy(keeper / name, self.files)
        return process.stderr

    def _supervise(self, verb: str) -> None:
        if verb in ("stop", "restart"):
            assert self.daemon.terminate() == 0
        if verb in ("start", "enable", "restart"):
            unit = RawConfigParser(strict=False)
            unit.optionxform = str  # type: ignore[assignment,method-assign]
            unit.read(self.site.path / "etc/systemd/system" / f"{UNIT}.service")
            binary, *words = shlex.split(self.here(unit["Service"]["ExecStart"]))
            assert binary == "/opt/laser-vfl/bin/laser-vfl"
            self.site.run(UNIT, *words).wait_ready()

    def fill_in(self) -> None:
        """Write what is the bank's own into the template."""
        path = self.etc / "client.yaml"
        text = self.here(path.read_text())
        for before, after in {
            "advertise: bank.example.org:7001": f"advertise: {free_address()}",
            "listen: 0.0.0.0:7001": "listen: 127.0.0.1:0",
            "predict_listen: 0.0.0.0:7101": "predict_listen: 127.0.0.1:0",
            "id: customer_id": "id: id",
            "label: churned": "label: kind",
            "device: auto": "device: cpu\nthreads: 1",
        }.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        config = yaml.safe_load(text)
        config["listen"] = config["advertise"]
        path.write_text(yaml.safe_dump(config))


def _sections() -> dict[str, list[str]]:
    """What to type, by the heading above it."""
    parts = re.split(r"^## (.*)$", (DEPLOY / "README.md").read_text(), flags=re.M)
    return {
        title: [
            line
            for block in re.findall(r"^```sh\n(.*?)^```", body, re.M | re.S)
            for line in block.splitlines()
        ]
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _start_the_others(host: Host) -> None:
    """The authority, the coordinator and the shop, which are there before the bank comes."""
    site = host.site
    for words in (
        ["init", "--federation", "churn"],
        ["issue", "--coordinator"],
        ["issue", "--client", "shop"],
    ):
        assert site.run("certs", "certs", *words).wait_exit() == 0

    def tls(name: str) -> dict[str, str]:
        files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
        return {key: f"certs/{file}" for key, file in files.items()}

    people = People(60)
    people.write(site.path, "shop", test_share=0.2)
    people.write(host.files, "bank", test_share=0.2)
    for table in ("train", "test"):
        (host.files / f"bank_{table}.csv").rename(host.files / f"{table}.csv")
    coordinator = site.coordinator_config(["bank", "shop"], {"epochs": 1}, tls=tls("coordinator"))
    path = site.write("coordinator", {**coordinator, "listen": host.coordinator})
    site.run("coordinator", "coordinator", "run", "--config", path.name).wait_ready()
    site.address = host.coordinator
    shop = site.write("shop", site.client_config("shop", tls=tls("shop")))
    site.run("shop", "client", "run", "--config", shop.name).wait_ready()


@pytest.mark.timeout(300)
def test_ten_steps_and_what_comes_after(plain_site: Site) -> None:
    sections, host = _sections(), Host(plain_site)
    plain_site.federation = "churn"
    numbered = [title for title in sections if title[0].isdigit()]
    assert [int(title.split(".")[0]) for title in numbered] == list(range(1, 11))
    _start_the_others(host)

    for title in numbered:
        host.follow(sections[title])
        if title == "4. Configure":
            host.fill_in()
        if title == "5. Make a key":
            assert "spiffe://churn/client/bank" in host.said
        if title == "9. Check":
            assert "ok    roster         the coordinator knows bank" in host.said
            assert "warn" not in host.said, host.said
    assert re.search(r"bank +│ yes", host.said), host.said

    host.daemon.wait_for("serving the model of run", 100.0)
    run = re.findall(r"serving the model of run (\w+)", host.daemon.stderr)[-1]

    renewal = sections["New certificates"]
    host.follow(renewal[:1])
    sign = [line for line in sections[numbered[5]] if "certs issue" in line]
    host.follow([*sign, *renewal[1:]])
    host.daemon.wait_for("the certificate has changed")
    assert not (host.etc / "certs/next").exists()

    back_up = sections["Backup"]
    restore = back_up.index("mv /var/lib/laser-vfl /var/lib/laser-vfl.before") - 1
    host.follow(back_up[:restore])
    host.follow(back_up[restore:])
    assert (plain_site.path / "var/lib/laser-vfl.before/state").exists()
    host.daemon.wait_for(f"serving the model of run {run}")

    host.follow(sections["Upgrade"])
    host.daemon.wait_for(f"serving the model of run {run}")
    said = eventually(lambda: host._ask(_status(host)), "the bank answers")
    assert run in said


def _status(host: Host) -> list[str]:
    return ["status", "--config", str(host.etc / "client.yaml")]
