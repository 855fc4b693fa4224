"""A Prometheus that reads real daemons, where its program is installed."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.support.daemons.harness import STOP_S, eventually, free_address

PROGRAM = shutil.which("prometheus")
OBSERVE = Path(__file__).parents[3] / "deploy" / "observe"

needs_prometheus = pytest.mark.skipif(
    PROGRAM is None, reason="prometheus is not here; Debian's package prometheus has it"
)


class Prometheus:
    """Answers questions about what it has read."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer, or None while there is none."""
        host, _, port = self._address.rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=10)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = connection.getresponse()
            text = answer.read()
        except OSError:
            return None
        finally:
            connection.close()
        assert answer.status in (200, 503), text
        return json.loads(text)["data"] if answer.status == 200 else None

    def results(self, expression: str) -> list[Any]:
        """Return all series that an expression gives now."""
        return list((self.ask("query", query=expression) or {}).get("result", []))


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run one with the project's own configuration, but for where the daemons are."""
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text("utf-8"))
    [job] = config["scrape_configs"]
    del job["relabel_configs"]
    job["static_configs"] = [
        {"targets": [address], "labels": {"instance": name}} for name, address in targets.items()
    ]
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    shutil.copy(OBSERVE / "rules.yml", directory)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = free_address()
    assert PROGRAM is not None
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={address}",
            ],
            cwd=directory,
            stdout=log,
            stderr=log,
        )
    server = Prometheus(address)
    try:
        eventually(lambda: server.ask("status/runtimeinfo"), "prometheus answers")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
