"""Whether a daemon serves, as `laser-vfl health` asks it; the server here is a stand-in."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from laser_vfl.cli.health import run_alive, run_health
from laser_vfl.core.errors import AddressError, ConfigError, ExitCode, IdentityError, NotReady
from laser_vfl.security.certificate_files import init_authority, issue
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.security.identity import client_of

pytestmark = pytest.mark.core

Status = health_pb2.HealthCheckResponse
LONG_AGO = datetime.now(UTC) - timedelta(days=20)


@contextmanager
def saying(status: int, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Serve one answer to whoever asks for the health; give the address."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    servicer = HealthServicer()
    servicer.set("", status)
    add_HealthServicer_to_server(servicer, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def client_config(directory: Path, listen: str) -> Path:
    config = {
        "federation": "churn",
        "name": "bank",
        "listen": listen,
        "predict_listen": "127.0.0.1:1",
        "coordinator": "127.0.0.1:1",
        "state": "./bank-state",
        "data": {"train": "nothing.csv", "id": "id"},
    }
    path = directory / "bank.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def coordinator_config(directory: Path, listen: str) -> Path:
    config = {
        "federation": "churn",
        "listen": listen,
        "state": "./coordinator-state",
        "clients": ["bank"],
        "training": {"representation_dim": 4, "batch_size": 4, "epochs": 1},
    }
    path = directory / "coordinator.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("write_config", [client_config, coordinator_config])
def test_who_serves_is_healthy(tmp_path, capsys, write_config):
    with saying(Status.SERVING) as address:
        path = write_config(tmp_path, address)
        run_health(path, as_json=False)
        run_health(path, as_json=True)
    text, answer = capsys.readouterr().out.splitlines()
    assert text == "SERVING"
    assert json.loads(answer) == {"address": address, "status": "SERVING"}


def test_who_does_not_serve_is_not_ready(tmp_path, capsys):
    with saying(Status.NOT_SERVING) as address, pytest.raises(NotReady):
        run_health(client_config(tmp_path, address), as_json=True)
    assert json.loads(capsys.readouterr().out)["status"] == "NOT_SERVING"
    assert NotReady.exit_code == ExitCode.NOT_READY


@pytest.mark.parametrize("run", [run_health, run_alive])
def test_nobody_there_is_an_error_of_the_address(tmp_path, run):
    with saying(Status.SERVING) as address:
        path = client_config(tmp_path, address)
    with pytest.raises(AddressError, match="nobody answers"):
        run(path, as_json=False)


def test_who_stops_is_alive(tmp_path, capsys):
    with saying(Status.NOT_SERVING) as address:
        run_alive(client_config(tmp_path, address), as_json=False)
    assert capsys.readouterr().err.startswith(f"alive: {address} says NOT_SERVING")


def test_nobody_is_started_again_for_a_certificate(tmp_path, capsys):
    """It has expired, so that nobody can speak with the daemon, which has it too."""
    authority = init_authority(tmp_path, "churn", now=LONG_AGO)
    me = client_of("churn", "bank")
    issue(authority, tmp_path, [me], days=1, now=LONG_AGO)
    tls = {"ca": "ca.pem", "cert": "bank.pem", "key": "bank.key"}
    files = CredentialFiles(**{key: tmp_path / name for key, name in tls.items()})
    with saying(Status.SERVING, load_credentials(files, me).for_server()) as address:
        path = client_config(tmp_path, address)
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"tls": tls}))
        with pytest.raises(IdentityError, match="expired"):
            run_health(path, as_json=False)
        run_alive(path, as_json=False)
    assert "taken for alive" in capsys.readouterr().err


def test_nobody_is_started_again_for_a_configuration(tmp_path, capsys):
    path = tmp_path / "bank.yaml"
    path.write_text("federation: churn\nnaem: bank\n")
    run_alive(path, as_json=False)
    assert "naem" in capsys.readouterr().err


def test_any_port_is_found_by_the_note_in_the_state(tmp_path, capsys):
    path = client_config(tmp_path, "127.0.0.1:0")
    with pytest.raises(AddressError, match="left no address"):
        run_health(path, as_json=False)
    (tmp_path / "bank-state").mkdir()
    with saying(Status.SERVING) as address:
        note = json.dumps({"listen": address, "predict": "127.0.0.1:1"})
        (tmp_path / "bank-state" / "listening.json").write_text(note)
        run_health(path, as_json=False)
    assert capsys.readouterr().out == "SERVING\n"


def test_a_configuration_that_is_wrong_is_said_to_be(tmp_path):
    path = tmp_path / "bank.yaml"
    path.write_text("federation: 3\n")
    with pytest.raises(ConfigError):
        run_health(path, as_json=False)


def test_it_starts_without_what_is_slow_to_import():
    """It runs every few seconds beside each daemon."""
    check = (
        "import sys, laser_vfl.cli.main, laser_vfl.cli.health; "
        "print([name for name in ('torch', 'numpy', 'polars', 'rich') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
