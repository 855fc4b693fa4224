"""The memory that shipped manifests give a coordinator holds for the people that it takes."""

from pathlib import Path

import yaml

from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import BYTES_PER_ENTRY

DEPLOY = Path(__file__).parents[3] / "deploy"
BESIDES = 100e6
"""What a coordinator takes without an alignment, and a little more."""

UNITS = {"M": 1e6, "G": 1e9, "Mi": 2**20, "Gi": 2**30}


def in_bytes(text: str) -> float:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS[unit]


def limits() -> list[str]:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    overlay = DEPLOY / "kubernetes" / "overlays" / "coordinator" / "daemon.yaml"
    [container] = yaml.safe_load(overlay.read_text())["spec"]["template"]["spec"]["containers"]
    coordinator = compose["services"]["coordinator"]
    return [
        coordinator["deploy"]["resources"]["limits"]["memory"],
        container["resources"]["limits"]["memory"],
    ]


def test_limits_hold_for_the_default_of_max_total_people() -> None:
    most = CoordinatorConfig.model_fields["max_total_people"].default
    needed = most * BYTES_PER_ENTRY + BESIDES
    assert [in_bytes(limit) >= needed for limit in limits()] == [True, True]
