"""Real daemons as child processes: start them, wait for what they say, end them all."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import polars as pl
import trustme
import yaml
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from laser_vfl import Predictor

HERE = Path(__file__).parent
POLL_S = 0.02
START_S = 60.0
STOP_S = 20.0

T = TypeVar("T")


def eventually(wanted: Callable[[], T], what: str, within_s: float = START_S) -> T:
    """Return the first true result of `wanted`, which is asked again and again until a deadline."""
    give_up_at = time.monotonic() + within_s
    while True:
        if result := wanted():
            return result
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what}: not within {within_s:g} s")
        time.sleep(POLL_S)


class Authority:
    """A certificate authority of a test, and the files it has issued."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(directory / "ca.pem")

    def issue(self, name: str) -> dict[str, str]:
        """Return a `tls` section for a daemon on loopback."""
        files = {
            "ca": self._directory / "ca.pem",
            "cert": self._directory / f"{name}.pem",
            "key": self._directory / f"{name}.key",
        }
        if not files["key"].exists():
            certificate = self._ca.issue_cert("127.0.0.1", "localhost", common_name=name)
            certificate.private_key_pem.write_to_path(files["key"])
            files["cert"].write_bytes(b"".join(b.bytes() for b in certificate.cert_chain_pems))
        return {key: str(path) for key, path in files.items()}

    def channel(self, address: str, name: str = "tester") -> grpc.Channel:
        """Return a channel of somebody who holds a certificate of this authority."""
        tls = {key: Path(path).read_bytes() for key, path in self.issue(name).items()}
        credentials = grpc.ssl_channel_credentials(tls["ca"], tls["key"], tls["cert"])
        return grpc.secure_channel(address, credentials)


class Process:
    """One `laser-vfl` process with its output in files."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, label: str | None = None
    ) -> None:
        self.name = name
        label = label or name
        self._stdout = directory / f"{label}.out"
        self._stderr = directory / f"{label}.err"
        environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONUNBUFFERED", None)
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory,
                env=environment,
            )

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
        (directory / "id.secret").write_text("a secret of the clients alone\n")

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.alive:
                process.signal(signal.SIGTERM)
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

    def run(self, name: str, *arguments: str, label: str | None = None) -> Process:
        """Start any command."""
        label = label or name
        taken = sum(p.name == name for p in self.processes)
        process = Process(
            name, ["-m", "laser_vfl", *arguments], self.path, f"{label}-{taken}" if taken else label
        )
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
        self, config: Mapping[str, Any], *arguments: str, file: str | None = None
    ) -> Process:
        """Start a client without waiting for it."""
        name = config["name"]
        path = self.write(file or name, config)
        return self.run(
            name, "client", "run", "--config", path.name, *self._insecure, *arguments, label=file
        )

    @property
    def tls_options(self) -> list[str]:
        """How a command that asks the coordinator shows who it is."""
        files = self.authority.issue("tester") if self.authority else {}
        return [word for key, path in files.items() for word in (f"--{key}", path)]

    def events(self) -> list[str]:
        """What the coordinator's history says has come of alignments and runs."""
        path = self.path / "coordinator-state" / "runs.jsonl"
        events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
        return [event for event in events if event != "aligning"]

    def wait_for_event(self, event: str, times: int = 1) -> None:
        eventually(lambda: self.events().count(event) >= times, f"a run has {event}")

    def metrics(self, name: str) -> list[dict[str, Any]]:
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


class Federation:
    """Clients that have trained together and serve; every sample is at all of them."""

    def __init__(
        self,
        site: Site,
        roster: Sequence[str],
        training: Mapping[str, Any],
        *,
        start: Mapping[str, Any] | None = None,
        alignment: str | None = None,
        **more: Any,
    ) -> None:
        people = People(90)
        for name in roster:
            people.write(site.path, name, p_hold=1.0, test_share=0.3)
        self.site = site
        self.roster = list(roster)
        self.ids = [f"person-{i:05d}" for i in range(63, 90)]
        """The samples of the test table."""
        self._more = more
        self.coordinator_config = site.coordinator_config(roster, training, start=start)
        if alignment:
            self.coordinator_config["alignment"] = alignment
        self.coordinator_config["listen"] = free_address()
        self.clients: dict[str, Process] = {}
        self.start_coordinator()
        for name in roster:
            self.start(name)
        for name in roster:
            self.clients[name].wait_for("serving the model of run")

    def start_coordinator(self) -> None:
        """Start it, always at the same address."""
        self.coordinator = self.site.start_coordinator(self.coordinator_config)

    def start(self, name: str) -> Process:
        """Start a client, at another port each time."""
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        if (self.site.path / f"{name}_serve.csv").exists():
            data["serve"] = f"{name}_serve.csv"
        config = self.site.client_config(name, data={**data, "label": "kind"}, **self._more)
        self.clients[name] = self.site.start_client(config)
        return self.clients[name]

    def predictor(self, name: str, deadline: float | None = 20.0) -> Predictor:
        return Predictor(self.clients[name].wait_predict(), deadline=deadline)

    def status(self, name: str) -> dict[str, Any]:
        """What a client says of itself."""
        with self.predictor(name) as predictor:
            return predictor.status()

    def runs(self) -> list[str]:
        """The run of the model that each client serves."""
        return [self.status(name)["model"]["run"] for name in self.roster]

    def manifest(self, name: str) -> dict[str, Any]:
        path = self.site.path / f"{name}-state" / "model" / "manifest.json"
        return dict(json.loads(path.read_text()))

    def wait_whole(self, within_s: float = START_S) -> None:
        """Wait until every client that is up predicts with all blocks."""
        for name in self.roster:
            with self.predictor(name) as predictor:
                eventually(
                    lambda predictor=predictor: predictor.predict(self.ids).blocks.all(),  # type: ignore[misc]
                    f"{name} predicts with all blocks",
                    within_s,
                )


def free_address() -> str:
    """Return a loopback address that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def health(channel: grpc.Channel) -> str:
    """Ask the standard health service."""
    answer = HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


class People:
    """Made-up samples with something to learn: a latent vector, and blocks and labels from it."""

    def __init__(self, num: int, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.num = num
        self._latent = self._rng.standard_normal((num, 4))
        self.labels = {
            "kind": np.array(["red", "green", "blue"])[self._latent[:, :3].argmax(axis=1)],
            "flag": (self._latent[:, 0] > 0.6).astype(np.int64),
            "amount": np.round(10 + 3 * self._latent[:, 1], 4),
        }

    def write(
        self,
        directory: Path,
        name: str,
        *,
        p_hold: float = 0.8,
        label: str | None = "kind",
        p_unlabelled: float = 0.0,
        num_features: int = 5,
        suffix: str = "csv",
        test_share: float = 0.0,
        held: "np.ndarray[Any, Any] | None" = None,
    ) -> None:
        """Write the rows that one client happens to hold, for training and for testing."""
        rng = self._rng
        mixing = rng.standard_normal((4, num_features))
        block = self._latent @ mixing + 0.3 * rng.standard_normal((self.num, num_features))
        holds = rng.random(self.num) < p_hold if held is None else held
        is_test = np.arange(self.num) >= self.num * (1 - test_share)
        missing = rng.random(self.num) < p_unlabelled
        frame = pl.DataFrame(
            {
                "id": [f"person-{i:05d}" for i in range(self.num)],
                **{f"x{j}": block[:, j] for j in range(num_features)},
            }
        )
        if label is not None:
            known = pl.Series(label, self.labels[label])
            frame = frame.with_columns(
                pl.when(pl.Series(missing)).then(None).otherwise(known).alias(label)
            )
        for table, rows in (("train", holds & ~is_test), ("test", holds & is_test)):
            if not rows.any():
                continue
            chosen = frame.filter(pl.Series(rows)).sample(fraction=1.0, shuffle=True, seed=1)
            path = directory / f"{name}_{table}.{suffix}"
            if suffix == "csv":
                chosen.write_csv(path)
            elif suffix == "parquet":
                chosen.write_parquet(path)
            else:
                features = chosen.select(pl.col("^x.*$")).to_numpy()
                arrays = {"id": chosen["id"].to_numpy().astype("U"), "x": features}
                if label is not None:
                    values = chosen[label].to_numpy()
                    arrays[label] = values.astype("U") if values.dtype == object else values
                np.savez(path, **arrays)
