"""Commands with a mistake that shows before any daemon is asked: one line, and an exit code."""

import re
from dataclasses import dataclass

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from laser_vfl.cli.main import app
from laser_vfl.core.errors import LaserError

CLIENT = {
    "federation": "churn",
    "name": "bank",
    "listen": "127.0.0.1:7102",
    "predict_listen": "127.0.0.1:7103",
    "coordinator": "127.0.0.1:7100",
    "state": "./bank-state",
    "data": {"train": "bank.csv", "id": "id"},
}
NEVER_STARTED = {**CLIENT, "name": "museum", "state": "./museum-state"} | {
    "listen": "127.0.0.1:0",
    "predict_listen": "127.0.0.1:0",
}


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank.yaml").write_text(yaml.safe_dump(CLIENT))
    (tmp_path / "museum.yaml").write_text(yaml.safe_dump(NEVER_STARTED))
    (tmp_path / "ids.csv").write_text("id\nzoe\n")
    (tmp_path / "header.csv").write_text("id\n")
    (tmp_path / "two.csv").write_text("name,number\nzoe,1\n")
    pl.DataFrame({"id": ["zoe"] * 9}).write_parquet(tmp_path / "ids.parquet")


@dataclass(frozen=True)
class Mistake:
    """A command that cannot succeed, whoever is up."""

    exit_code: int
    says: str
    command: str


PREDICT = "predict --config bank.yaml --ids ids.csv"
ASK = "predict --client 127.0.0.1:7103 --ids ids.csv"
MISTAKES = {
    "all of it at once": Mistake(2, "give it alone", f"{PREDICT} --client 127.0.0.1:7103"),
    "whom to ask": Mistake(2, "whom to ask is not said", "predict --ids ids.csv"),
    "a token alone": Mistake(2, "a token goes with ca and name", f"{ASK} --token-file header.csv"),
    "a daemon that was never started": Mistake(
        4, "museum does not seem to be up", "predict --config museum.yaml --ids ids.csv"
    ),
    "beyond loopback without tls": Mistake(
        5, "not on loopback", "predict --client 192.0.2.7:7101 --ids ids.csv"
    ),
    "no address": Mistake(2, 'host:port, got "bank"', "predict --client bank --ids ids.csv"),
    "port 0": Mistake(2, "nobody can be reached at", "status --client 127.0.0.1:0"),
    "two of three files": Mistake(2, "key not given", f"{ASK} --ca a.pem --cert b.pem"),
    "a certificate that is not there": Mistake(
        5, r"a\.pem: ", f"{ASK} --ca a.pem --cert b.pem --key c.key"
    ),
    "no time at all": Mistake(2, '--deadline: "0ms" is no time', f"{PREDICT} --deadline 0ms"),
    "a negative time": Mistake(2, '--deadline: "-1s" is no time', f"{PREDICT} --deadline=-1s"),
    "a time that is none": Mistake(2, '--deadline: "soon" is', f"{PREDICT} --deadline soon"),
    "another suffix": Mistake(2, "neither .csv nor .parquet", f"{PREDICT} --out rows.txt"),
    "no such directory": Mistake(
        2, r"nowhere/rows\.csv: cannot be written", f"{PREDICT} --out nowhere/rows.csv"
    ),
    "no such file of ids": Mistake(
        3, r"^absent\.csv: cannot be read", "predict --config bank.yaml --ids absent.csv"
    ),
    "a file without ids": Mistake(3, "no ids", "predict --config bank.yaml --ids header.csv"),
    "no column of ids": Mistake(
        3, r'^two\.csv:1: no column is called "id"', "predict --config bank.yaml --ids two.csv"
    ),
    "a table in place of ids": Mistake(
        3, r"^ids\.parquet:\d+: ", "predict --config bank.yaml --ids ids.parquet"
    ),
    "status of nobody": Mistake(2, "give --config", "status"),
    "status of two": Mistake(
        2, "give --config", "status --client 127.0.0.1:7103 --coordinator 127.0.0.1:7100"
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_an_exit_code(mistake, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = CliRunner().invoke(app, mistake.command.split())
    error = ended.exception
    assert isinstance(error, LaserError), ended.output
    assert error.exit_code == mistake.exit_code
    assert re.search(mistake.says, str(error))
    assert "\n" not in str(error)
    assert ended.stdout == ended.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before
