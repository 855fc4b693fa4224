"""The example works when a new user follows its README, and its data can be made again."""

import filecmp
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Site

CHURN = Path(__file__).parents[2] / "examples" / "churn"
LEFT_BY_A_RUN = shutil.ignore_patterns("*-state", "*.log", "id.secret", "__pycache__")
TRAINED_WITHIN_S = 100.0


@pytest.fixture
def churn(plain_site: Site) -> Site:
    """A copy of the example, as it comes out of the repository."""
    shutil.copytree(CHURN, plain_site.path, dirs_exist_ok=True, ignore=LEFT_BY_A_RUN)
    (plain_site.path / "id.secret").unlink()
    return plain_site


@pytest.mark.timeout(180)
def test_the_readme_leads_to_scores(churn: Site) -> None:
    [coordinator_command, *client_commands], make_secret, show_scores = _commands(churn.path)
    subprocess.run(make_secret, shell=True, cwd=churn.path, check=True, timeout=30)

    _edit(churn.path / "coordinator.yaml", listen="127.0.0.1:0")
    coordinator = churn.run("coordinator", *coordinator_command)
    address = coordinator.wait_ready()
    clients = {}
    for command in client_commands:
        config = churn.path / command[command.index("--config") + 1]
        _edit(config, listen="127.0.0.1:0", advertise=None, coordinator=address)
        clients[config.stem] = churn.run(config.stem, *command)

    assert {name: c.wait_exit(TRAINED_WITHIN_S) for name, c in clients.items()} == {
        "bank": 0,
        "shop": 0,
        "telco": 0,
    }
    assert coordinator.terminate() == 0
    bank, shop = (_scores(churn.path / f"{name}-state") for name in ("bank", "shop"))
    assert list(bank["by_subset"]) == ["bank", "bank,shop", "bank,telco", "bank,shop,telco"]
    assert list(shop["by_subset"]) == ["shop", "bank,shop", "shop,telco", "bank,shop,telco"]
    assert bank["overall"]["auc"] > bank["by_subset"]["bank"]["auc"] + 0.05
    assert bank["by_subset"]["bank,shop,telco"]["auc"] > 0.85
    assert not (churn.path / "telco-state" / "scores.json").exists()
    for name in clients:
        assert (churn.path / f"{name}-state" / "model" / "model.safetensors").exists()
    shown = subprocess.run(
        show_scores, shell=True, cwd=churn.path, check=True, timeout=30, capture_output=True
    )
    assert b"bank,shop,telco" in shown.stdout


def test_the_data_can_be_made_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, CHURN / "make_data.py", tmp_path], check=True, timeout=30)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in CHURN.glob("*.csv"))
    assert filecmp.cmpfiles(CHURN, tmp_path, names, shallow=False) == (names, [], [])


def _commands(directory: Path) -> tuple[list[list[str]], str, str]:
    """Return what the README tells to type: the daemons, the secret, the scores."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (directory / "README.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    daemons = [list(_arguments(line)) for line in lines if line.startswith("laser-vfl ")]
    make_secret, show_scores = (
        shlex.quote(sys.executable) + line.removeprefix("python")
        for line in lines
        if line.startswith("python ")
    )
    assert len(daemons) == 4
    return daemons, make_secret, show_scores


def _arguments(line: str) -> Iterator[str]:
    """Yield the arguments of a command, without what is for the shell."""
    for word in shlex.split(line)[1:]:
        if word in ("2>", "&"):
            return
        yield word


def _edit(path: Path, **keys: str | None) -> None:
    """Give top-level keys of a configuration other values; None takes a key out."""
    text = path.read_text()
    for key, value in keys.items():
        line = "" if value is None else f"{key}: {value}\n"
        text, num_found = re.subn(rf"^{key}: .*\n", line, text, flags=re.M)
        assert num_found == 1, f"{path.name} has no {key}"
    path.write_text(text)


def _scores(state: Path) -> dict:
    return json.loads((state / "scores.json").read_text())
