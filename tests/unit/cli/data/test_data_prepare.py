"""`laser-vfl data`: what is listed, what is refused, and the files that are written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from laser_vfl.cli.main import app
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ExitCode, LaserError
from laser_vfl.data import TableSpec, read_table

NUM = {"train": 240, "test": 120}
NAMES = ("bank", "shop", "telco")


@pytest.fixture(autouse=True)
def _tiny_hapt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HAPT in the official layout, made small, is the only data set that is here."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LASER_VFL_DATA", str(tmp_path / "files"))
    for table, num in NUM.items():
        folder = tmp_path / "files" / table.capitalize()
        folder.mkdir(parents=True)
        np.savetxt(folder / f"X_{table}.txt", rng.normal(size=(num, 561)), fmt="%.4f")
        np.savetxt(folder / f"y_{table}.txt", np.arange(num) % 12 + 1, fmt="%d")


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["data", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def prepare(*words: str, out: str = "new") -> dict[str, Any]:
    options = ("--clients", "3", "--out", out, "--format", "json")
    return dict(json.loads(run("prepare", "hapt", *options, *words)))


def test_list_says_what_is_here_and_where_to_get_the_rest():
    listed = json.loads(run("list", "--format", "json"))
    kinds = {entry["name"]: entry["kind"] for entry in listed["sets"]}
    absent = dict.fromkeys(("credit", "mimic4", "icu", "cifar10", "cifar100"))
    assert kinds == {"hapt": "official", **absent, "digits": "installed"}
    text = run("list")
    assert "official: files" in text
    assert "credit: UCI Machine Learning Repository" in text
    assert "hapt: UCI" not in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("hapt", "--p-miss", "1.5"), ExitCode.CONFIG, "missing with probability 1.5"),
        (("hapt", "--p-miss", "often"), ExitCode.CONFIG, 'probability "often"'),
        (("hapt", "--p-miss-test=-1"), ExitCode.CONFIG, "missing with probability -1"),
        (("hapt", "--p-miss", "0.999"), ExitCode.CONFIG, "would have no train rows"),
        (("hapt", "--method", "boosting"), ExitCode.CONFIG, 'no method "boosting"'),
        (("hapt", "--out", "files"), ExitCode.CONFIG, "files is not empty"),
        (("mnist",), ExitCode.CONFIG, 'no data set "mnist"'),
        (("hapt", "--data", "gone"), ExitCode.DATA, "gone: there is no such directory"),
        (("credit",), ExitCode.DATA, "DOI 10.24432/C55S3H"),
    ],
)
def test_what_cannot_be_prepared_is_refused(words, code, said):
    result = CliRunner().invoke(app, ["data", "prepare", "--out", "new", *words])
    assert isinstance(result.exception, LaserError)
    assert result.exception.exit_code == code
    assert said in str(result.exception)
    assert result.exception.hint
    assert not Path("new").exists()


@pytest.mark.parametrize("words", [("--clients", "0"), ("--clients", "9"), ("--seed", "-1")])
def test_options_out_of_range_are_refused(words):
    result = CliRunner().invoke(app, ["data", "prepare", "hapt", "--out", "new", *words])
    assert result.exit_code == ExitCode.CONFIG


def test_tables_hold_the_rows_whose_blocks_are_there():
    result = prepare("--p-miss", "0.5", "--p-miss-test", "0", "--seed", "3")
    assert result["num_samples"] == NUM
    train = {name: _table(f"new/{name}_train.npz") for name in NAMES}
    test = {name: _table(f"new/{name}_test.npz") for name in NAMES}
    for name in NAMES:
        assert len(train[name].ids) == result["num_rows"][name]["train"]
        assert 80 < len(train[name].ids) < 160
        assert train[name].features.shape[1:] == (187,)
        assert train[name].features.dtype == np.float32
        # A sample has the same id everywhere, and a label that follows from its place in the files.
        for table, first in ((train[name], 0), (test[name], NUM["train"])):
            labels = [(int(sample) - first) % 12 for sample in table.ids]
            assert table.labels.to_list() == labels
    assert len({tuple(table.ids) for table in train.values()}) == 3
    assert {tuple(table.ids) for table in test.values()} == {
        tuple(str(240 + row) for row in range(120))
    }


def test_a_seed_repeats_and_another_differs():
    one, again, other = (
        prepare("--p-miss", "beta", "--seed", seed, out=out)
        for seed, out in (("1", "a"), ("1", "b"), ("2", "c"))
    )
    assert one["num_rows"] == again["num_rows"] != other["num_rows"]
    assert Path("a/bank_train.npz").read_bytes() == Path("b/bank_train.npz").read_bytes()


@pytest.mark.parametrize("insecure", [False, True])
def test_configurations_are_those_of_the_experiment(insecure):
    result = prepare("--p-miss", "0.5", "--seed", "4", *(["--insecure"] if insecure else []))
    coordinator = load_config(Path("new/coordinator.yaml"), CoordinatorConfig)
    assert coordinator.clients == list(NAMES)
    assert coordinator.training.epochs == 100
    assert coordinator.training.seed == 4
    assert coordinator.training.batching == "by_pattern"
    assert (coordinator.tls is None) == insecure
    for name in NAMES:
        client = load_config(Path(f"new/{name}.yaml"), ClientConfig)
        assert (client.optimizer.lr, client.optimizer.momentum) == (0.02, 0.7)
        assert client.model.hidden == [128, 128]
        assert client.data.task == "multiclass"
        assert (client.tls is None) == insecure
        assert client.data.train.exists()
    text = "\n".join(result["commands"])
    assert ("--insecure" in text) == insecure
    assert ("certs issue --dir certs --all bank,shop,telco" in text) != insecure


def test_the_product_s_defaults_are_a_method_too():
    prepare("--method", "laser-mixed")
    training = yaml.safe_load(Path("new/coordinator.yaml").read_text())["training"]
    assert training["method"] == "laser"
    assert training["preset"] == "default"


def test_text_has_the_notes_and_the_commands():
    text = run("prepare", "hapt", "--out", "a new one", "--clients", "2")
    assert "the official features" in text
    assert "cd 'a new one'" in text
    assert "laser-vfl client run --exit-after-training --config bank.yaml" in text


def _table(path: str) -> Any:
    return read_table(Path(path), TableSpec(id="sample", label="label"))
