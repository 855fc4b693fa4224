"""The image: what is in it, what is not, and how it starts and stops."""

import os
import sys

import pytest
from engine import ROOT, Engine

pytestmark = pytest.mark.timeout(1500)  # the first test brings up an engine and builds the images

IMAGE = "laser-vfl"


def shell(engine: Engine, script: str) -> str:
    """Return what a shell in the image prints."""
    output = engine.client.containers.run(
        IMAGE, ["-c", script], entrypoint="sh", remove=True, read_only=True, network_mode="none"
    )
    return str(output.decode())


def test_it_says_what_it_is_and_runs_as_nobody_special(built: Engine) -> None:
    config = built.client.images.get(IMAGE).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.title"] == "laser-vfl"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["Entrypoint"] == ["tini", "--", "laser-vfl"]
    assert config["Healthcheck"]["Test"][:3] == ["CMD", "laser-vfl", "health"]
    assert list(config["Volumes"]) == ["/var/lib/laser-vfl"]


def test_it_has_what_is_locked_and_says_so(built: Engine) -> None:
    """The audit reads the image from outside. A stand-in for the base image has no digest."""
    script = ROOT / "scripts" / "audit.py"
    command = [sys.executable, str(script), "--only-image", "--image", IMAGE]
    done = built.run(command, check=False)
    *problems, summary = done.stdout.splitlines()
    base = os.environ.get("BASE", "python:3.11-slim")
    is_pinned = "@sha256:" in base
    assert len(problems) == done.returncode == (0 if is_pinned else 1)
    assert is_pinned or problems[0].startswith(f"base image: {base} is NOT pinned by a digest")
    assert "distributions and" in summary


def test_nothing_to_build_with_and_no_caches(built: Engine) -> None:
    found = shell(built, "for tool in gcc cc g++ make ld git; do command -v $tool; done; true")
    assert found == ""
    environment = "/opt/laser-vfl/lib/python3.11/site-packages"
    assert shell(built, f"ls {environment} | grep -E '^(pip|setuptools|wheel)$' || true") == ""
    left = shell(built, f"ls -d /root/.cache /source /package {environment}/torch/include; true")
    assert left == ""


def test_it_needs_nothing_that_was_left_out(built: Engine) -> None:
    """Everything that the daemons import is there, on a file system that cannot be written."""
    check = (
        "import laser_vfl.client.daemon, laser_vfl.coordinator.daemon, torch; "
        "model = torch.nn.Linear(4, 2); optimizer = torch.optim.Adam(model.parameters()); "
        "model(torch.ones(3, 4)).sum().backward(); optimizer.step(); print('fine')"
    )
    assert shell(built, f'/opt/laser-vfl/bin/python -c "{check}"') == "fine\n"


def test_the_first_process_reaps_what_others_leave_behind(built: Engine) -> None:
    """A child whose parent has ended becomes the first process's, and must not stay a zombie."""
    script = (
        "(sh -c 'sleep 0.2 & exit' &); sleep 1; "
        "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"
    )
    output = built.client.containers.run(
        IMAGE, ["--", "sh", "-c", script], entrypoint="tini", remove=True, network_mode="none"
    )
    assert output.decode().strip() == "0"


def test_its_size_is_what_torch_makes_it(built: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Our part, without the base image, is at most a third more than torch and polars."""
    own = sum(layer["Size"] for layer in built.client.images.get(IMAGE).history()) - sum(
        layer["Size"] for layer in built.client.images.get("python:3.11-slim").history()
    )
    parts = shell(
        built, "cd /opt/laser-vfl/lib/python3.11/site-packages && du -sk torch _polars_runtime_32"
    )
    large = sum(int(line.split()[0]) * 1024 for line in parts.splitlines())
    with capsys.disabled():
        print(f"\nimage: {own / 1e6:.0f} MB above its base; torch and polars are {large / 1e6:.0f}")
    assert own < 1.34 * large


@pytest.mark.parametrize("command", ["client", "coordinator"])
def test_a_mistake_ends_it_with_the_documented_code(built: Engine, command: str) -> None:
    container = built.client.containers.create(
        IMAGE, [command, "run", "--config", "/nowhere.yaml"], read_only=True, network_mode="none"
    )
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 2
        assert b"no such file" in container.logs()
    finally:
        container.remove(force=True)
