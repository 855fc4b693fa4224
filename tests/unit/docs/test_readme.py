"""The README is short, and what it tells to type works."""

import re
from pathlib import Path

import pytest
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf-8")
RUNNING = (ROOT / "docs" / "running.md").read_text("utf-8")
EXAMPLE = (ROOT / "examples" / "churn" / "README.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_readme_stays_short() -> None:
    assert len(README.splitlines()) <= 180


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^make (\S+)$", "\n".join(blocks(README, "sh")), re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_first_look_at_own_data_runs_and_scores_as_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [code] = blocks(README, "python")
    torch.set_num_threads(1)  # several that wait for each other are slow on a busy machine
    exec(compile(code, "README.md", "exec"), {})
    [score] = re.findall(r"\)\s+# (0\.\d+)$", code, re.MULTILINE)
    assert float(capsys.readouterr().out) == pytest.approx(float(score), abs=0.02)


def test_the_daemons_of_own_data_are_started_as_in_the_example_that_is_tested() -> None:
    [commands] = [block for block in blocks(README, "sh") if "my-federation" in block]
    tested = {line for block in blocks(EXAMPLE, "sh") for line in block.splitlines()}
    daemons = [line for line in commands.splitlines() if re.search(r" run |certs|^kill", line)]
    assert len(daemons) == 7
    assert set(daemons) <= tested


@pytest.mark.parametrize("page", [README, RUNNING], ids=["README", "running"])
def test_the_configurations_load(page: str, tmp_path: Path) -> None:
    shown = blocks(page, "yaml")
    assert shown
    for text in shown:
        file = tmp_path / "a.yaml"
        file.write_text(text, "utf-8")
        load_config(file, CoordinatorConfig if "clients:" in text else ClientConfig)
