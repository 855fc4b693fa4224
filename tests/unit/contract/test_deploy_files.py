"""What deploy/ says about the image and the trial is true of the code; no container runs here."""

import re
from pathlib import Path

import pytest
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.release import __version__

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CLIENTS = ["bank", "shop", "telco", "clinic"]


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def test_the_configurations_of_the_trial_are_right():
    coordinator = load_config(DEPLOY / "digits" / "coordinator.yaml", CoordinatorConfig)
    assert coordinator.clients == CLIENTS
    for name in CLIENTS:
        config = load_config(DEPLOY / "digits" / f"{name}.yaml", ClientConfig)
        assert (config.federation, config.name) == (coordinator.federation, name)
        assert str(config.advertise) == f"{name}:{config.listen.port}"
        assert str(config.coordinator) == f"coordinator:{coordinator.listen.port}"
        assert config.predict_listen.port == 7101  # where `ask` looks for it
        assert config.tls is not None


def test_every_container_is_confined(services):
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}, name
        assert not {"privileged", "cap_add", "user", "ports"} & set(service), name


def test_nobody_has_a_volume_of_somebody_else(services):
    for name in ["coordinator", *CLIENTS]:
        volumes = [volume.split(":")[0] for volume in services[name]["volumes"]]
        assert all(volume.startswith(f"{name}-") for volume in volumes), volumes
        assert services[name]["networks"] == ["federation", name]


def test_who_has_a_gpu_is_a_client():
    services = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())["services"]
    assert list(services) == CLIENTS
    for service in services.values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]


def test_the_dockerfile_needs_no_frontend_and_has_the_release():
    text = (DEPLOY / "Dockerfile").read_text()
    assert not re.search(r"^#\s*(syntax|escape|check)\s*=", text, re.MULTILINE)
    assert f"ARG VERSION={__version__}\n" in text
    assert text.startswith("# One image")
