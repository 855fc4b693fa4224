"""The federation of deploy/compose.yaml, as a project of its own that a test brings up."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from docker.errors import NotFound
from docker.models.containers import Container
from engine import ROOT, Engine

COMPOSE = ROOT / "deploy" / "compose.yaml"
CLIENTS = ("bank", "shop", "telco", "clinic")
DAEMONS = ("coordinator", *CLIENTS)
STATE = "/var/lib/laser-vfl"
CONFIG = "/etc/laser-vfl/config.yaml"
POLL_S = 0.5

T = TypeVar("T")
Row = dict[str, Any]


def eventually(wanted: Callable[[], T], what: str, within_s: float) -> T:
    """Return the first true result of `wanted`, which is asked again and again until a deadline."""
    give_up_at = time.monotonic() + within_s
    while True:
        if result := wanted():
            return result
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what}: not within {within_s:g} s")
        time.sleep(POLL_S)


class Trial(AbstractContextManager["Trial"]):
    """A federation in containers. Leaving it removes all of it."""

    def __init__(
        self, engine: Engine, project: str, *overrides: Path, without: Sequence[str] = ()
    ) -> None:
        self.engine = engine
        self.project = project
        self._without = without
        files = [word for path in (COMPOSE, *overrides) for word in ("-f", str(path))]
        self._compose = ["docker", "compose", "-p", project, *files]

    def __enter__(self) -> "Trial":
        self._remove()
        services = self.compose("config", "--services").split()
        self.compose("up", "--detach", *(name for name in services if name not in self._without))
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        self.compose("--profile", "*", "down", "--volumes", "--timeout", "10")

    def compose(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Run a command of Compose and return what it printed."""
        return self.engine.run([*self._compose, *arguments], timeout_s=timeout_s).stdout

    def container(self, name: str) -> Container:
        """Return what runs a service, as it is now."""
        return self.engine.client.containers.get(f"{self.project}-{name}-1")

    def health(self, name: str) -> str:
        """Return what the engine's health check says: starting, healthy or unhealthy."""
        return str(self.container(name).attrs["State"]["Health"]["Status"])

    def wait_healthy(self, names: Sequence[str] = DAEMONS, within_s: float = 120.0) -> None:
        for name in names:
            eventually(lambda name=name: self.health(name) == "healthy", f"{name} is up", within_s)

    def read(self, name: str, path: str) -> str:
        """Return the content of a file in a container; empty if it is not there."""
        code, output = self.container(name).exec_run(["cat", path], stderr=False)
        return output.decode() if code == 0 else ""

    def exec(self, name: str, *command: str) -> str:
        """Run a command in a container and return its stdout."""
        code, (out, err) = self.container(name).exec_run(list(command), demux=True)
        assert code == 0, f"{name}: {command}: {code}\n{(err or b'').decode()}"
        return (out or b"").decode()

    def status(self) -> dict[str, Any]:
        """Return how the federation is doing, as its coordinator says."""
        command = ["laser-vfl", "status", "--config", CONFIG, "--format", "json"]
        return dict(json.loads(self.exec("coordinator", *command)))

    def events(self) -> list[str]:
        """Return what has come of alignments and runs."""
        lines = self.read("coordinator", f"{STATE}/runs.jsonl").splitlines()
        return [json.loads(line)["event"] for line in lines]

    def wait_for_run(self, within_s: float = 600.0) -> None:
        """Wait until the run has finished; one that stops is an error."""

        def finished() -> bool:
            events = self.events()
            assert "stopped" not in events, self.logs()
            return "finished" in events

        eventually(finished, "the run has finished", within_s)

    def metrics(self, name: str) -> list[Row]:
        """Return what a client noted of its steps."""
        lines = self.read(name, f"{STATE}/metrics.jsonl").splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in found if "event" not in line]

    def predict(self, name: str) -> dict[str, Row]:
        """Ask an organisation about all test samples, as its application; rows by id."""
        rows = self.compose("run", "--rm", "-T", "predict", name, "--format", "json")
        return {row["id"]: row for row in map(json.loads, rows.splitlines())}

    def federation_network(self) -> Any:
        """Return the network that the daemons have in common."""
        return self.engine.client.networks.get(f"{self.project}_federation")

    def logs(self) -> str:
        """Return the end of what everybody said."""
        return self.compose("logs", "--tail", "30", "--no-color")

    def is_running(self, name: str) -> bool:
        try:
            return str(self.container(name).status) == "running"
        except NotFound:
            return False


def uids(container: Container) -> set[str]:
    """Return as whom the processes of a container run."""
    return {line[0] for line in container.top(ps_args="-eo uid,pid,args")["Processes"]}


def blocks_used(rows: dict[str, Row]) -> set[str]:
    """Return whose blocks any of the predictions used."""
    return {name for row in rows.values() if row["blocks"] for name in row["blocks"].split(",")}
