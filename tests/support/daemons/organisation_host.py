"""The machine of an organisation that follows deploy/organisation/README.md, and those it joins."""

import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import yaml

from tests.support.daemons.harness import Process, Site, eventually, free_address
from tests.support.data.people import People

DEPLOY = Path(__file__).parents[3] / "deploy" / "organisation"
UNIT = "laser-vfl-client"
FILE_COMMANDS = {"install", "mv", "rm", "tar", "cp"}
JOIN_S = 100.0


class Host:
    """The bank's machine in a directory: it does what the page says, where it can.

    What needs root, Docker or systemd is left out; it stands in for systemd itself, with the
    command of the unit.
    """

    left_out = (
        *("groupadd ", "useradd ", "docker ", "alias ", "python3.11 ", "ln ", "ufw ", "iptables "),
        *("/opt/", "runuser ", "LASER_VFL_TAG=", "sed -i "),
    )
    ip = "127.0.0.1"
    """Where it and the others reach each other."""

    def __init__(self, site: Site, files: Path) -> None:
        self.site = site
        self.coordinator = self.free_address()
        self.advertised = self.free_address()
        self.files = files
        """Where the page is read, as its reader does."""
        self.done: list[str] = []
        self.said = ""
        for place in ("etc/laser-vfl", "etc/systemd/system", "srv", "var/lib", "root"):
            (site.path / place).mkdir(parents=True)

    @property
    def etc(self) -> Path:
        return self.site.path / "etc/laser-vfl"

    @property
    def _daemon(self) -> Process:
        return [process for process in self.site.processes if process.name == UNIT][-1]

    def free_address(self) -> str:
        return free_address().replace("127.0.0.1", self.ip)

    def here(self, text: str) -> str:
        """Put what a text says of the machine into the directory."""
        return re.sub(r"(?<![\w/.])/(etc|srv|var/lib|root)/", rf"{self.site.path}/\1/", text)

    def follow(self, commands: list[str]) -> None:
        for command in commands:
            if not command.startswith(self.left_out):
                self._do(command.replace("coordinator.example.org:7000", self.coordinator))
            self.done.append(command)

    def _do(self, command: str) -> None:
        first, *words = shlex.split(command)
        if first == "systemctl":
            self._supervise(words[0])
        elif words[:2] == ["certs", "issue"]:
            self.said = self._sign(words)
        elif first == "laser-vfl":
            self.said = self._ask(words)
        else:
            assert first in FILE_COMMANDS, f"can this be run in a test? {command}"
            line = self.owned(self.here(command))
            subprocess.run(shlex.split(line), cwd=self.files, check=True, timeout=30)

    def owned(self, command: str) -> str:
        """Let whoever runs the test be the user of the daemon."""
        return re.sub(r" -[og] \S+", "", command)

    def _ask(self, words: list[str]) -> str:
        words = [self.here(word) for word in words]
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
            assert self._daemon.terminate() == 0
        if verb in ("start", "enable", "restart"):
            unit = RawConfigParser(strict=False)
            unit.optionxform = str  # type: ignore[assignment,method-assign]
            unit.read(self.site.path / "etc/systemd/system" / f"{UNIT}.service")
            binary, *words = shlex.split(self.here(unit["Service"]["ExecStart"]))
            assert binary == "/opt/laser-vfl/bin/laser-vfl"
            self.site.run(UNIT, *words).wait_ready()

    def log(self) -> str:
        """What the daemon has said since it was started last."""
        assert self._daemon.alive, self._daemon.stderr
        return self._daemon.stderr

    def wait_for(self, text: str) -> None:
        eventually(lambda: text in self.log(), f"the daemon says {text!r}", JOIN_S)

    def fill_in(self) -> None:
        """Write what is the bank's own into the template."""
        path = self.etc / "client.yaml"
        text = path.read_text()
        for before, after in self.own_lines().items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        path.write_text(yaml.safe_dump(self.config(yaml.safe_load(text))))

    def own_lines(self) -> dict[str, str]:
        """What stands in the template, and the bank's own in its place."""
        return {
            "coordinator: coordinator.example.org:7000": f"coordinator: {self.coordinator}",
            "advertise: bank.example.org:7001": f"advertise: {self.advertised}",
            "id: customer_id": "id: id",
            "label: churned": "label: kind",
            "device: auto": "device: cpu\nthreads: 1",
        }

    def config(self, filled_in: dict[str, Any]) -> dict[str, Any]:
        """What else has to be so that many tests can run on one machine."""
        placed = dict(yaml.safe_load(self.here(yaml.safe_dump(filled_in))))
        return placed | {"listen": self.advertised, "predict_listen": "127.0.0.1:0"}


def commands_of_the_page() -> dict[str, list[str]]:
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


def start_the_others(host: Host) -> None:
    """The authority, the coordinator and the shop, which are there before the bank comes."""
    site = host.site
    site.federation = "churn"
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
    shop = site.client_config("shop", tls=tls("shop"), listen=host.free_address())
    shop["data"]["test"] = "shop_test.csv"
    path = site.write("shop", shop)
    site.run("shop", "client", "run", "--config", path.name).wait_ready()


def follow_the_page(host: Host) -> None:
    """From nothing to joined, and then new certificates, a backup brought back, and an upgrade."""
    page = commands_of_the_page()
    numbered = [title for title in page if title[0].isdigit()]
    assert [int(title.split(".")[0]) for title in numbered] == list(range(1, 11))
    start_the_others(host)
    for title in numbered:
        host.follow(page[title])
        if title == "4. Configure":
            host.fill_in()
        if title == "5. Make a key":
            assert "spiffe://churn/client/bank" in host.said
        if title == "9. Check":
            assert "ok    roster         the coordinator knows bank" in host.said
            assert "warn" not in host.said, host.said
    assert re.search(r"bank +│ yes", host.said), host.said
    host.wait_for("serving the model of run")
    run = re.findall(r"serving the model of run (\w+)", host.log())[-1]

    renewal = page["New certificates"]
    host.follow(renewal[:1])
    sign = [line for line in page[numbered[5]] if "certs issue" in line]
    host.follow([*sign, *renewal[1:]])
    host.wait_for("the certificate has changed")
    assert not (host.etc / "certs/next").exists()

    back_up = page["Backup"]
    restore = back_up.index("mv /var/lib/laser-vfl /var/lib/laser-vfl.before") - 1
    host.follow(back_up[:restore])
    host.follow(back_up[restore:])
    assert (host.site.path / "var/lib/laser-vfl.before/state").exists()
    host.wait_for(f"serving the model of run {run}")

    host.follow(page["Upgrade"])
    host.wait_for(f"serving the model of run {run}")
    host.follow(
        [line for line in page[numbered[9]] if line.startswith("laser-vfl status --config")]
    )
    assert run in host.said
