"""The example works when a new user follows its README, and its data can be made again."""

import csv
import filecmp
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.daemons.harness import Site, eventually, free_address

CHURN = Path(__file__).parents[3] / "examples" / "churn"
LEFT_BY_A_RUN = shutil.ignore_patterns("*-state", "*.log", "__pycache__")
TRAINED_WITHIN_S = 100.0


@pytest.fixture
def churn(plain_site: Site) -> Site:
    """A copy of the example, as it comes out of the repository."""
    shutil.copytree(CHURN, plain_site.path, dirs_exist_ok=True, ignore=LEFT_BY_A_RUN)
    (plain_site.path / "id.secret").unlink()
    return plain_site


@pytest.mark.timeout(300)
def test_the_readme_leads_to_scores_and_predictions(churn: Site) -> None:
    readme = _commands(churn.path)
    address = free_address()
    _edit(churn.path / "coordinator.yaml", listen=address)
    for name in ("bank", "shop", "telco"):
        _edit(
            churn.path / f"{name}.yaml",
            listen="127.0.0.1:0",
            advertise=None,
            predict_listen="127.0.0.1:0",
            coordinator=address,
        )
    for words in readme.certificates:
        assert churn.run("certs", *words).wait_exit() == 0
    _train(churn, readme)
    bank, shop = (_scores(churn.path / f"{name}-state") for name in ("bank", "shop"))
    assert list(bank["by_subset"]) == ["bank", "bank,shop", "bank,telco", "bank,shop,telco"]
    assert list(shop["by_subset"]) == ["shop", "bank,shop", "shop,telco", "bank,shop,telco"]
    assert bank["overall"]["auc"] > bank["by_subset"]["bank"]["auc"] + 0.05
    assert bank["by_subset"]["bank,shop,telco"]["auc"] > 0.85
    assert not (churn.path / "telco-state" / "scores.json").exists()
    for name in ("bank", "shop", "telco"):
        assert (churn.path / f"{name}-state" / "model" / "model.safetensors").exists()
    assert "bank,shop,telco" in _shell(readme.show_scores, churn.path)

    _serve(churn, readme)


def _train(churn: Site, readme: "Readme") -> None:
    coordinator, *clients = (churn.run(_role(words), *words) for words in readme.train)
    assert {client.name: client.wait_exit(TRAINED_WITHIN_S) for client in clients} == {
        "bank": 0,
        "shop": 0,
        "telco": 0,
    }
    endings = [client.stderr.partition(" trained ")[2] for client in clients]
    assert all(endings)
    assert not any(" WARNING " in ending for ending in endings), "all went well"
    assert coordinator.terminate() == 0


def _serve(churn: Site, readme: "Readme") -> None:
    """Ask as the README does."""
    daemons = {_role(words): churn.run(_role(words), *words) for words in readme.serve}
    for daemon in daemons.values():
        daemon.wait_ready()

    def said(words: list[str]) -> str:
        process = churn.run(words[0], *words)
        assert process.wait_exit() == 0, process.stderr
        return process.stdout

    predict, status, align, retrain, federation = readme.ask

    def blocks_that_the_readme_shows() -> bool:
        rows = list(csv.DictReader(io.StringIO(said(predict))))
        assert [row["id"] for row in rows] == list(readme.blocks)
        return {row["id"]: row["blocks"] for row in rows} == readme.blocks

    # A peer that the bank has just tried in vain is not asked again at once.
    eventually(blocks_that_the_readme_shows, "the bank predicts with these blocks")
    old_run = _run_of_model(churn)
    assert old_run in said(status)
    overlaps = said(align).splitlines()
    assert len(readme.overlaps) == 7
    assert set(readme.overlaps) <= set(overlaps)
    assert _run_of_model(churn) == old_run, "nothing was trained"
    started = re.fullmatch(r"run (\w+) has started with seed \d+\n", said(retrain))
    assert started
    assert started[1] != old_run
    assert started[1] in said(federation)
    eventually(lambda: _run_of_model(churn) == started[1], "bank serves the new model")
    for daemon in daemons.values():
        assert daemon.terminate() == 0


def test_the_data_can_be_made_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, CHURN / "make_data.py", tmp_path], check=True, timeout=30)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in CHURN.glob("*_*.csv"))
    assert filecmp.cmpfiles(CHURN, tmp_path, names, shallow=False) == (names, [], [])


@dataclass(frozen=True)
class Readme:
    """What the README tells to type, and what it says that comes of it."""

    certificates: list[list[str]]
    show_scores: str
    train: list[list[str]]
    serve: list[list[str]]
    ask: list[list[str]]
    blocks: dict[str, str]
    """Of each id, what its prediction is made from."""
    overlaps: list[str]
    """The lines of a table that say how many samples have which blocks."""


def _commands(directory: Path) -> Readme:
    text = (directory / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    [show_scores] = (
        shlex.quote(sys.executable) + line.removeprefix("python")
        for line in lines
        if line.startswith("python ")
    )
    commands = [list(_arguments(line)) for line in lines if line.startswith("laser-vfl ")]
    certificates = [words for words in commands if words[0] == "certs"]
    daemons = [words for words in commands if words[1] == "run"]
    ask = [words for words in commands if words not in (*certificates, *daemons)]
    assert len(daemons) == 8
    assert [words[0] for words in ask] == ["predict", "status", "align", "retrain", "status"]
    [rows] = re.findall(r"^```\n(id,.*?)^```", text, re.M | re.S)
    shown = {row["id"]: row["blocks"] for row in csv.DictReader(io.StringIO(rows))}
    overlaps = re.findall(r"^│.*│$", text, re.M)
    return Readme(certificates, show_scores, daemons[:4], daemons[4:], ask, shown, overlaps)


def _role(words: list[str]) -> str:
    """Name a daemon by its configuration file."""
    return Path(words[words.index("--config") + 1]).stem


def _shell(command: str, directory: Path) -> str:
    done = subprocess.run(
        command, shell=True, cwd=directory, check=True, timeout=30, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


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


def _run_of_model(churn: Site) -> str:
    return str(json.loads((churn.path / "bank-state/model/manifest.json").read_text())["run"])
