"""Real daemons as child processes: start them, wait for what they say, end them all."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import grpc
import yaml
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from laser_vfl import Predictor
from laser_vfl.config.test_policy import VARIABLE
from laser_vfl.core.errors import AddressError
from laser_vfl.remote.calls import Access, client_access, coordinator_access
from laser_vfl.security.certificate_files import file_name, init_authority, issue
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from tests.support.daemons.warm_start import WarmProcess, can_be_warm
from tests.support.data.own_models import HURRY

ROOT = Path(__file__).parents[3]
"""Where a child process imports `tests.support` from: models of tests, and other clients."""
POLL_S = 0.02
STATUS_POLL_S = 0.1
"""A daemon that is asked for its status has to answer, so it is asked less often."""
START_S = 60.0
STOP_S = 20.0
FREE_PORTS = (15_000, 32_000)
"""Below those that whoever asks for port 0 gets."""

T = TypeVar("T")


def eventually(
    wanted: Callable[[], T], what: str, within_s: float = START_S, poll_s: float = POLL_S
) -> T:
    """Return the first true result of `wanted`, which is asked again and again until a deadline."""
    give_up_at = time.monotonic() + within_s
    while True:
        if result := wanted():
            return result
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what}: not within {within_s:g} s")
        time.sleep(poll_s)


class Authority:
    """A certificate authority of a test, and the files it has issued."""

    def __init__(self, directory: Path, federation: str = "trial") -> None:
        self.directory = directory
        self.federation = federation
        self._ca = init_authority(directory, federation, now=datetime.now(UTC))

    def issue(self, name: str) -> dict[str, str]:
        """Return a `tls` section for a daemon, for the operator "tester", or for bank/crm."""
        identity = self.identity(name)
        path = self.directory / f"{file_name(identity)}.pem"
        if not path.exists():
            issue(self._ca, self.directory, [identity], now=datetime.now(UTC))
        files = {"ca": self.directory / "ca.pem", "cert": path, "key": path.with_suffix(".key")}
        return {key: str(path) for key, path in files.items()}

    def identity(self, name: str) -> Identity:
        """Return whom a name of a test means."""
        if name == "coordinator":
            return coordinator_of(self.federation)
        if name == "tester":
            return Identity(self.federation, "operator", name)
        organisation, _, application = name.partition("/")
        if application:
            return Identity(self.federation, "application", application, organisation)
        return client_of(self.federation, name)

    def channel(self, address: str, to: str, name: str = "tester") -> grpc.Channel:
        """Return a channel to a daemon of somebody who holds a certificate of this authority."""
        tls = {key: Path(path).read_bytes() for key, path in self.issue(name).items()}
        credentials = grpc.ssl_channel_credentials(tls["ca"], tls["key"], tls["cert"])
        options = [("grpc.ssl_target_name_override", self.identity(to).dns)]
        return grpc.secure_channel(address, credentials, options=options)


class Process:
    """One `laser-vfl` process with its output in files."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        label: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.is_daemon = "run" in command
        self.tls: dict[str, str] = {}
        """How its owner shows who it is: with a certificate, with a token, or not at all."""
        label = label or name
        self._stdout = directory / f"{label}.out"
        self._stderr = directory / f"{label}.err"
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        variables.pop("PYTHONUNBUFFERED", None)
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = _start(command, stdout=out, stderr=err, cwd=directory, env=variables)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> str:
        """Wait for the ready line and return the address in it."""
        return self._ready()["address"]

    def wait_predict(self) -> str:
        """Wait for the ready line and return the address for applications in it."""
        return self._ready()["predict"]

    def wait_metrics(self) -> str:
        """Wait for the ready line and return the address of the metrics in it."""
        return self._ready()["metrics"]

    def metrics_page(self) -> str:
        """What Prometheus would read now."""
        host, _, port = self.wait_metrics().rpartition(":")
        with closing(HTTPConnection(host, int(port), timeout=10)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, text
        return text

    def predictor(self, deadline: float | None = 10.0) -> Predictor:
        """Ask it for predictions as its owner."""
        return Predictor(
            self.wait_predict().replace("0.0.0.0", "127.0.0.1"), deadline=deadline, **self.tls
        )

    def access(self) -> Access:
        """How its owner reaches it."""
        files = {"ca": None, "cert": None, "key": None, **self.tls}
        return client_access(self.wait_predict(), **files)

    def _ready(self) -> dict[str, str]:

        def line() -> str:
            first, newline, _ = self.stdout.partition("\n")
            assert newline or self.alive, f"{self.name} ended:\n{self.stderr}"
            return first if newline else ""

        words = eventually(line, f"{self.name} is ready").split()
        assert words[0] == "ready", words
        return dict(word.split("=", 1) for word in words[1:])

    def wait_for(self, text: str, within_s: float = START_S, times: int = 1) -> None:
        """Wait until a text is in the log."""

        def said() -> bool:
            if self.stderr.count(text) >= times:
                return True
            assert self.alive, f"{self.name} ended without {text!r}:\n{self.stderr}"
            return False

        eventually(said, f"{self.name} says {text!r}", within_s)

    def wait_for_served(
        self, run: str = "", *, other_than: str = "", within_s: float = START_S
    ) -> str:
        """Wait until it serves the model of this run, or of any other than one; return the run."""

        def served() -> str:
            try:
                model = predictor.status()["model"]
            except AddressError:
                assert self.alive, f"{self.name} ended:\n{self.stderr}"
                return ""
            found = str(model["run"]) if model else ""
            return found if found != other_than and run in ("", found) else ""

        with self.predictor() as predictor:
            what = f"{self.name} serves a model"
            return eventually(served, what, within_s, STATUS_POLL_S)

    def wait_exit(self, within_s: float = START_S) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {within_s:g} s:\n{self.stderr}"
            ) from None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self, within_s: float = STOP_S) -> int:
        """Send SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_exit(within_s)

    def kill(self) -> None:
        """End it whatever happens."""
        if self.alive:
            self._process.kill()
        self._process.wait()

    def report(self) -> str:
        state = "alive" if self.alive else f"exit code {self._process.returncode}"
        return f"--- {self.name} ({state}), stdout:\n{self.stdout}--- stderr:\n{self.stderr}"


def _start(
    command: Sequence[str], *, env: Mapping[str, str], **files: Any
) -> "subprocess.Popen[bytes] | WarmProcess":
    if can_be_warm(command):
        return WarmProcess(command, env=env, **files)
    return subprocess.Popen([sys.executable, *command], stdin=subprocess.DEVNULL, env=env, **files)


class Site(AbstractContextManager["Site"]):
    """A directory with the files of a whole federation, and the processes started in it."""

    def __init__(
        self, directory: Path, authority: Authority | None, federation: str = "trial"
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory
        self.authority = authority
        self.federation = federation
        self.address = "127.0.0.1:1"
        self.processes: list[Process] = []
        self.environment: dict[str, str] = {}
        """Variables for all processes that are started from now on."""
        (directory / "id.secret").write_text("a secret of the clients alone\n")
        (directory / "id.secret").chmod(0o600)

    def __exit__(self, *_: object) -> None:
        # Daemons are killed: how they leave is for tests to look at, and a second in each teardown.
        # Other commands may have children to end.
        for process in self.processes:
            if process.alive:
                process.signal(signal.SIGKILL if process.is_daemon else signal.SIGTERM)
        give_up_at = time.monotonic() + STOP_S
        for process in self.processes:
            while process.alive and time.monotonic() < give_up_at:
                time.sleep(POLL_S)
            process.kill()

    def report(self) -> str:
        return "\n".join(process.report() for process in self.processes)

    def coordinator_config(
        self, clients: Sequence[str], training: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        config = {
            "federation": self.federation,
            "listen": "127.0.0.1:0",
            "state": "./coordinator-state",
            "clients": list(clients),
            "training": {
                "representation_dim": 8,
                "batch_size": 16,
                "epochs": 2,
                "seed": 3,
                **training,
            },
            **more,
        }
        return self._with_tls(config, "coordinator")

    def client_config(self, name: str, **more: Any) -> dict[str, Any]:
        config = {
            "federation": self.federation,
            "name": name,
            "listen": "127.0.0.1:0",
            "coordinator": self.address,
            "state": f"./{name}-state",
            "id_secret_file": "id.secret",
            "data": {"train": f"{name}_train.csv", "id": "id", "label": "kind"},
            "model": {"representation": "mlp", "hidden": [12]},
            "threads": 1,
            "device": "cpu",
            **more,
        }
        return self._with_tls(config, name)

    def write(self, name: str, config: Mapping[str, Any]) -> Path:
        path = self.path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(config), sort_keys=False))
        return path

    def run(
        self,
        name: str,
        *arguments: str,
        label: str | None = None,
        program: Sequence[str] = ("laser_vfl",),
    ) -> Process:
        """Start any command; `program` is a module that takes it, and what goes before it."""
        label = label or name
        taken = sum(p.name == name for p in self.processes)
        label = f"{label}-{taken}" if taken else label
        command = ["-m", *program, *arguments]
        process = Process(name, command, self.path, label, self.environment)
        process.tls = self.authority.issue(name) if self.authority else {}
        self.processes.append(process)
        return process

    def start_coordinator(self, config: Mapping[str, Any], *arguments: str) -> Process:
        """Start the coordinator, wait for it and remember its address."""
        path = self.write("coordinator", config)
        process = self.run(
            "coordinator", "coordinator", "run", "--config", path.name, *self._insecure, *arguments
        )
        self.address = process.wait_ready()
        return process

    def start_client(
        self,
        config: Mapping[str, Any],
        *arguments: str,
        file: str | None = None,
        program: Sequence[str] = ("laser_vfl",),
    ) -> Process:
        """Start a client without waiting for it."""
        name = config["name"]
        path = self.write(file or name, config)
        arguments = ("client", "run", "--config", path.name, *self._insecure, *arguments)
        return self.run(name, *arguments, label=file, program=program)

    @property
    def tls_options(self) -> list[str]:
        """How a command that asks the coordinator shows who it is."""
        return self.tls_options_of("tester") if self.authority else []

    def tls_options_of(self, name: str) -> list[str]:
        """How a command shows a certificate."""
        assert self.authority is not None
        files = self.authority.issue(name)
        return [word for key, path in files.items() for word in (f"--{key}", path)]

    def wait_shorter(self, policies: Mapping[str, Mapping[str, float]]) -> None:
        """Change waiting times of the daemons that are started from now on, by class and field."""
        self.environment[VARIABLE] = json.dumps(policies)

    def hurry(self) -> None:
        """Have models that take their time do the rest of the steps as fast as they can."""
        (self.path / HURRY).touch()

    def operator_access(self) -> Access:
        """How the operator of the coordinator reaches it."""
        files = {"ca": None, "cert": None, "key": None}
        if self.authority:
            files |= self.authority.issue("tester")
        return coordinator_access(self.address, **files)

    def events(self) -> list[str]:
        """What the coordinator's history says has come of alignments and runs."""
        path = self.path / "coordinator-state" / "runs.jsonl"
        events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
        return [event for event in events if event != "aligning"]

    def wait_for_event(self, event: str, times: int = 1) -> None:
        eventually(lambda: self.events().count(event) >= times, f"a run has {event}")

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """What a client noted of its steps."""
        return [line for line in self._metrics_lines(name) if "event" not in line]

    def happenings(self, name: str) -> list[dict[str, Any]]:
        """What a client noted of all else that happened in its runs."""
        return [line for line in self._metrics_lines(name) if "event" in line]

    def _metrics_lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / f"{name}-state" / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def _insecure(self) -> list[str]:
        return [] if self.authority else ["--insecure"]

    def _with_tls(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        if self.authority and "tls" not in config:
            config["tls"] = self.authority.issue(name)
        return config


def free_address() -> str:
    """Return a loopback address that nobody listens on, of a port that the system gives nobody."""
    while True:
        port = random.randrange(*FREE_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return f"127.0.0.1:{port}"


def health(channel: grpc.Channel) -> str:
    """Ask the standard health service."""
    answer = HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
