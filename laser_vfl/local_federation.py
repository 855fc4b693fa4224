"""A whole federation on this machine, one process per daemon, for the demo and benchmarks."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from laser_vfl.atomic_files import replace_file
from laser_vfl.core.errors import ConfigError, TrainingStopped
from laser_vfl.private_files import FILE_MODE, make_private_directory
from laser_vfl.rotating_files import all_files
from laser_vfl.security.certificate_files import make_federation

CERTS = "certs"
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05


class LocalFederation:
    """Starts daemons from configurations that it writes into a directory, and ends them all.

    It makes certificates for them, unless they run `insecure`.
    """

    def __init__(self, directory: Path, *, insecure: bool) -> None:
        self._directory = directory
        self._insecure = insecure
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.predict_addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._on_sigterm = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        signal.signal(signal.SIGTERM, self._on_sigterm)

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each daemon."""
        return {name: process.pid for name, process in self._processes.items()}

    def start_coordinator(self, config: Mapping[str, Any]) -> str:
        """Start the coordinator and return its address."""
        if not self._insecure:
            make_federation(self._directory / CERTS, config["federation"], config["clients"])
        self._spawn("coordinator", ["coordinator", "run"], config)
        return self._wait_until_ready("coordinator")["address"]

    def start_clients(
        self, configs: Mapping[str, Mapping[str, Any]], *, stay: bool = False
    ) -> None:
        """Start all clients side by side; they leave when they have trained, or stay and serve."""
        flags = [] if stay else ["--exit-after-training"]
        for name, config in configs.items():
            self._spawn(name, ["client", "run", *flags], config)
        for name in configs:
            self.predict_addresses[name] = self._wait_until_ready(name)["predict"]

    def wait(self, timeout_s: float, watch: Callable[[], None] = lambda: None) -> None:
        """Wait until all clients have trained; raise the last log line of the first that fails."""
        give_up_at = time.monotonic() + timeout_s
        clients = {n: p for n, p in self._processes.items() if n != "coordinator"}
        while any(process.poll() is None for process in clients.values()):
            watch()
            for name, process in clients.items():
                if process.poll():
                    raise self._failure(name)
            if time.monotonic() > give_up_at:
                raise TrainingStopped(f"the federation did not finish within {timeout_s:g} s")
            time.sleep(POLL_S)
        for name, process in clients.items():
            if process.returncode:
                raise self._failure(name)
        watch()

    def kill(self, name: str) -> None:
        """Kill one daemon; it has no chance to say goodbye."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def stop(self) -> None:
        """End whatever still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()

    def _spawn(self, name: str, command: list[str], config: Mapping[str, Any]) -> None:
        path = self._directory / f"{name}.yaml"
        tls = {"ca": f"{CERTS}/ca.pem", "cert": f"{CERTS}/{name}.pem", "key": f"{CERTS}/{name}.key"}
        identity = {} if self._insecure else {"tls": tls}
        flags = ["--insecure"] if self._insecure else []
        path.write_text(yaml.safe_dump({**config, **identity}, sort_keys=False))
        with (self._directory / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "laser_vfl", *command, "--config", path.name, *flags],
                cwd=self._directory,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def _wait_until_ready(self, name: str) -> dict[str, str]:
        process = self._processes[name]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            process.wait()
            raise self._failure(name)
        return dict(word.split("=", 1) for word in line.split()[1:])

    def _failure(self, name: str) -> TrainingStopped:
        lines = (self._directory / f"{name}.log").read_text().strip().splitlines()
        said = lines[-1] if lines else "it said nothing"
        code = self._processes[name].poll()
        return TrainingStopped(f"{name} ended with exit code {code}: {said}")


def step_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines about steps of a client's metrics.jsonl; events are left out."""
    text = "".join(file.read_text() for file in all_files(path))
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in map(json.loads, whole) if "event" not in line]


def write_own_key(state: Path, origin: str) -> None:
    """Give a client a key that follows from a text, so that its run can be repeated."""
    make_private_directory(state)
    replace_file(state / "own.key", hashlib.sha256(origin.encode()).digest(), mode=FILE_MODE)


def use_new_directory(directory: Path, option: str) -> None:
    """Create a directory, or take an empty one; refuse any other."""
    hint = f"give {option} a new directory"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", hint=hint)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used ({error.strerror})", hint=hint) from None
