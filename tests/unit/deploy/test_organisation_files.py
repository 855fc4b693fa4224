"""What deploy/organisation has for a host: the container, the service and the template."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from laser_vfl.cli.main import app
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ExitCode
from laser_vfl.core.release import __version__

ORGANISATION = Path(__file__).resolve().parents[3] / "deploy" / "organisation"
TEMPLATE = ORGANISATION / "client.yaml"
UNIT = ORGANISATION / "laser-vfl-client.service"
NEED_A_PERSON = {ExitCode.CONFIG, ExitCode.DATA, ExitCode.IDENTITY, ExitCode.MISMATCH}
MOST_EXPOSED = 20
"""In tenths, as systemd rates a service: from 0, shut in, to 100."""


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((ORGANISATION / "compose.yaml").read_text())


def _environment() -> dict[str, str]:
    lines = (ORGANISATION / "env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_containers_have_no_rights(compose) -> None:
    for service in compose["services"].values():
        assert service["user"] == "10001:10001"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
        assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
        writable = {each["target"] for each in service["volumes"] if not each.get("read_only")}
        assert "/srv/laser-vfl" not in writable
    client = compose["services"]["client"]
    assert [v["target"] for v in client["volumes"] if not v.get("read_only")] == [
        "/var/lib/laser-vfl"
    ]
    assert client["restart"] == "unless-stopped"
    assert client["healthcheck"]["test"][1:3] == ["laser-vfl", "health"]


def test_all_that_compose_asks_for_is_in_the_example() -> None:
    text = (ORGANISATION / "compose.yaml").read_text()
    asked = dict(re.findall(r"\$\{(\w+):[-?]([^}]*)\}", text))
    given = _environment()
    assert asked.keys() == given.keys()
    defaults = {key: asked[key] for key in asked if key != "LASER_VFL_TAG"}
    assert defaults == {key: given[key] for key in defaults}
    assert given["LASER_VFL_TAG"] == __version__


def test_ports_are_those_of_the_template(compose, tmp_path) -> None:
    template = (ORGANISATION / "client.yaml").read_text()
    path = tmp_path / "client.yaml"
    path.write_text(template)
    config = load_config(path, ClientConfig)
    published = [port.rsplit(":", 1)[1] for port in compose["services"]["client"]["ports"]]
    assert published == [str(config.listen.port), str(config.predict_listen.port), "9464"]
    environment = _environment()
    assert config.advertise is not None
    assert environment["PEER_PORT"] == str(config.advertise.port)
    assert environment["PREDICT_ADDRESS"] == "127.0.0.1"
    assert compose["services"]["client"]["ports"][2].startswith("127.0.0.1:")
    inside = compose["services"]["client"]["environment"]["LASER_VFL_METRICS_LISTEN"]
    assert inside == "0.0.0.0:9464"
    assert "\nmetrics_listen: 127.0.0.1:9464 " in TEMPLATE.read_text()


def test_daemons_are_started_by_commands_that_exist(compose) -> None:
    commands = get_command(app).commands
    started = compose["services"]["client"]["command"]
    assert started[:2] == ["client", "run"]
    assert "run" in commands["client"].commands
    [line] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.M)
    assert line.split()[1:] == started


def test_the_service_is_not_started_again_when_a_person_is_needed() -> None:
    [codes] = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.M)
    assert {int(code) for code in codes.split()} == {int(code) for code in NEED_A_PERSON}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_and_finds_it_shut_in(tmp_path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/laser-vfl/bin/laser-vfl", shutil.which("true")))

    def analyze(*words: str) -> None:
        command = ["systemd-analyze", *words, str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr, done.stderr

    analyze("verify", "--man=no")
    analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager")
