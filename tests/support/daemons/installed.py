"""Daemons started by the installed command, as a user starts them.

Each is a process of its own in an environment that sets nothing for it: no warm start, no number of
threads, no import path of tests.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from tests.support.daemons.harness import eventually

EVENT_S = 120.0
END_S = 30.0
OWN_COMMAND = Path(sys.executable).parent / "laser-vfl"


class Installation(AbstractContextManager["Installation"]):
    """A directory with everybody's files, and the daemons that were started in it."""

    def __init__(self, directory: Path, command: Path = OWN_COMMAND) -> None:
        self.path = directory
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._command = str(command)
        self._outputs: dict[str, Path] = {}
        self._num_started = 0
        self._environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("OMP_", "MKL_", "PYTHON", "LASER_VFL_"))
        }

    def __exit__(self, *_: object) -> None:
        for name, daemon in self.daemons.items():
            daemon.send_signal(signal.SIGCONT)
            self.kill(name)

    def write(self, name: str, config: Mapping[str, Any]) -> None:
        """Write somebody's configuration."""
        (self.path / f"{name}.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def call(self, *words: str) -> str:
        """Run a command to its end and return what it prints."""
        done = subprocess.run(
            [self._command, *words],
            cwd=self.path,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *names: str, options: Sequence[str] = ()) -> None:
        """Start daemons; none is waited for."""
        for name in names:
            role = "coordinator" if name == "coordinator" else "client"
            words = [self._command, role, "run", "--config", f"{name}.yaml", *options]
            self._num_started += 1
            self._outputs[name] = self.path / f"{self._num_started:02d}-{name}.log"
            with self._outputs[name].open("wb") as log:
                self.daemons[name] = subprocess.Popen(
                    words, stdout=log, stderr=log, cwd=self.path, env=self._environment
                )

    def kill(self, *names: str) -> None:
        """End daemons with SIGKILL, all at once."""
        for name in names:
            self.daemons[name].kill()
        for name in names:
            self.daemons[name].wait()

    def stop_all(self) -> None:
        """End all daemons as an operator does; each has to end well."""
        for daemon in self.daemons.values():
            daemon.terminate()
        codes = {name: daemon.wait(END_S) for name, daemon in self.daemons.items()}
        assert not any(codes.values()), f"{codes}\n{self.logs()}"

    def wait(self, wanted: Callable[[], object], what: str) -> None:
        """Wait for an event; a daemon that ends meanwhile without being killed is a failure."""

        def looks() -> bool:
            ended = {n: d.returncode for n, d in self.daemons.items() if d.poll() is not None}
            unexpected = {name: code for name, code in ended.items() if code != -signal.SIGKILL}
            assert not unexpected, str(unexpected)
            return bool(wanted())

        try:
            eventually(looks, what, EVENT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def are_ready(self) -> bool:
        """Whether every daemon has printed that it is."""
        return all(
            any(line.startswith("ready ") for line in path.read_text().splitlines())
            for path in self._outputs.values()
        )

    def logs(self) -> str:
        """What all daemons have said so far."""
        return "\n".join(f"--- {p.name}\n{p.read_text()}" for p in sorted(self.path.glob("*.log")))

    def num_finished(self) -> int:
        """How many runs all members have finished, as the coordinator notes it."""
        path = self.path / "coordinator-state" / "runs.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(json.loads(line)["event"] == "finished" for line in lines)

    def last_checkpoint(self, name: str) -> int:
        """The step of a client's last checkpoint of the run under way; 0 if there is none.

        The file with its description is written last.
        """
        found = (self.path / f"{name}-state").glob("runs/*/checkpoints/*.json")
        return max((int(path.stem) for path in found), default=0)

    def manifest(self, name: str) -> dict[str, Any]:
        """What a client's published model says of itself; empty as long as there is none."""
        path = self.path / f"{name}-state" / "model" / "manifest.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found
