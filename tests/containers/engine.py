"""A Docker engine for the tests: one that a script brings up, or one that is there already."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker

ROOT = Path(__file__).parents[2]
UP_SCRIPT = Path("shared/tools/containers-up")
START_S = 600.0


class NoEngine(Exception):
    """There is no engine, and why."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers. `script` and `directory` are those it was started with, if it was."""

    environment: Mapping[str, str]
    client: docker.DockerClient
    script: Path | None = None
    directory: Path | None = None

    def run(
        self, command: Sequence[str], *, timeout_s: float = 600.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command whose docker client asks this engine; what it says is in the error."""
        done = subprocess.run(
            list(command),
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            words = " ".join(command)
            raise AssertionError(
                f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def close(self) -> None:
        """Let it be, and stop it if it was started here."""
        self.client.close()
        if self.script and self.directory:
            subprocess.run([self.script, self.directory, "--down"], check=True)


def open_engine() -> Engine:
    """Return an engine with Compose; raises `NoEngine` where there is none.

    LASER_VFL_CONTAINERS_UP names a script that brings one up; otherwise it is looked for beside the
    checkout. LASER_VFL_CONTAINERS_DIR is where its engine keeps its data, so that the next time is
    quick.
    """
    script = _script()
    if script is None:
        return _checked(dict(os.environ))
    directory = _directory()
    environment = _environment(script, directory)
    was_up = not _problem(environment)
    try:
        done = subprocess.run(
            [script, directory],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=START_S,
        )
    except subprocess.TimeoutExpired:
        raise NoEngine(f"{script.name} was not done within {START_S:g} s") from None
    if done.returncode:
        raise NoEngine(f"{script.name} failed: {(done.stderr.strip() or '?').splitlines()[-1]}")
    engine = _checked(environment)
    return engine if was_up else Engine(environment, engine.client, script, directory)


def tool(name: str) -> Path | None:
    """Return a script that lies beside the one for engines, if it is there."""
    script = _script()
    found = script.parent / name if script else None
    return found if found and found.exists() else None


def _script() -> Path | None:
    named = os.environ.get("LASER_VFL_CONTAINERS_UP")
    if named:
        return Path(named)
    found = (parent / UP_SCRIPT for parent in ROOT.parents)
    return next((path for path in found if path.exists()), None)


def _directory() -> Path:
    named = os.environ.get("LASER_VFL_CONTAINERS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir()
    return Path(named) if named else Path(cache) / "laser-vfl-containers"


def _environment(script: Path, directory: Path) -> dict[str, str]:
    """Return the environment by which commands find the engine that the script brings up."""
    try:
        lines = subprocess.check_output([script, directory, "--env"], text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoEngine(f"{script} cannot be run: {error}") from None
    words = lines.replace("export ", "").split()
    return {**os.environ, **dict(word.split("=", 1) for word in words)}


def _problem(environment: Mapping[str, str]) -> str:
    """Return why there is no engine with Compose; empty if there is one."""
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        except OSError:
            return "docker is not installed"
        if done.returncode:
            last = (done.stderr.strip() or "?").splitlines()[-1]
            return f"`{' '.join(command)}` fails: {last}"
    return ""


def _checked(environment: Mapping[str, str]) -> Engine:
    if problem := _problem(environment):
        raise NoEngine(problem)
    return Engine(environment, docker.DockerClient.from_env(environment=dict(environment)))
