"""The commands against daemons that serve: what they print and write, and how they end."""

import csv
import io
import json
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from laser_vfl.transport.prediction_replies import Predictions
from tests.support.daemons.harness import Process, Site, eventually, free_address
from tests.support.data.people import People

LABELS = {"bank": "kind", "shop": "amount", "telco": None}
ROSTER = list(LABELS)
DEADLINE_S = 10.0


@dataclass
class Serving:
    """A federation of three that serves, and what it predicts for the ids of ids.csv."""

    site: Site
    coordinator: Process
    clients: dict[str, Process]
    ids: list[str] = field(default_factory=list)
    expected: dict[str, Predictions] = field(default_factory=dict)

    def address(self, client: str) -> str:
        return self.clients[client].wait_predict()

    def start(self, *arguments: str) -> Process:
        return self.site.run("command", *arguments)

    def run(self, *arguments: str, exit_code: int = 0) -> Process:
        """Run a command to its end."""
        process = self.start(*arguments)
        assert process.wait_exit() == exit_code, process.report()
        return process

    def predict(self, client: str, *arguments: str, ids: str = "ids.csv") -> Process:
        return self.run("predict", "--config", f"{client}.yaml", "--ids", ids, *arguments)


@pytest.fixture(scope="module")
def serving(shared_site: Site) -> Serving:
    site = shared_site
    people = People(100)
    for name, label in LABELS.items():
        people.write(site.path, name, label=label, p_hold=0.6, test_share=0.4)
    coordinator = site.start_coordinator(site.coordinator_config(ROSTER, {}))
    clients = {name: site.start_client(_config(site, name)) for name in ROSTER}
    for client in clients.values():
        client.wait_for_served()
    serving = Serving(site, coordinator, clients)
    people_held = [pl.read_csv(site.path / f"{name}_test.csv")["id"] for name in ("bank", "shop")]
    serving.ids = [*pl.concat(people_held).unique().sort(), "=nobody", "zoë, of Åre"]
    _write_ids(site.path / "ids.csv", serving.ids)
    for name in ("bank", "shop"):
        serving.expected[name] = _settled(serving, name)
    return serving


def _config(site: Site, name: str) -> dict[str, Any]:
    data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
    if LABELS[name]:
        data["label"] = LABELS[name]
    return site.client_config(name, data=data)


def _write_ids(path: Path, ids: list[str]) -> None:
    """Write ids in the second of three columns."""
    rows = [("name", "id", "note"), *((f"the {i}th", text, "") for i, text in enumerate(ids))]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _settled(serving: Serving, client: str) -> Predictions:
    with serving.clients[client].predictor(DEADLINE_S) as predictor:

        def asked() -> Predictions | None:
            predictions = predictor.predict(serving.ids)
            return None if any(predictions.peers.values()) else predictions

        predictions = eventually(asked, f"{client} asks everybody")
    assert len(set(predictions.block_names)) == 5, "four sets of blocks, and none"
    return predictions


@pytest.mark.core
def test_rows_go_to_stdout_as_csv(serving: Serving) -> None:
    process = serving.predict("bank")
    rows = list(csv.DictReader(io.StringIO(process.stdout)))
    expected = serving.expected["bank"]
    assert list(rows[0]) == [
        *("id", "prediction", "prob_blue", "prob_green", "prob_red"),
        *("blocks", "expected_score", "error"),
    ]
    _check_rows(rows, expected, missing="")
    num = sum(error is None for error in expected.errors)
    assert f"{num} of {len(rows)} samples predicted in " in process.stderr
    assert f"run {expected.run}\n" in process.stderr


def test_rows_go_to_stdout_as_json(serving: Serving) -> None:
    process = serving.predict("shop", "--format", "json", "--deadline", "10s")
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    assert list(rows[0]) == ["id", "prediction", "blocks", "expected_score", "error"]
    _check_rows(rows, serving.expected["shop"], missing=None)
    errors = [row for row in rows if row["error"] is not None]
    assert {row["error"] for row in errors} == {"shop does not hold this sample"}


def test_a_csv_file_and_a_summary(serving: Serving) -> None:
    process = serving.predict("shop", "--out", "shop.csv", "--deadline", "10000ms")
    with (serving.site.path / "shop.csv").open(newline="") as file:
        _check_rows(list(csv.DictReader(file)), serving.expected["shop"], missing="")
    assert process.stderr == ""
    first, second, *lines = process.stdout.splitlines()
    expected = serving.expected["shop"]
    num_errors = sum(error is not None for error in expected.errors)
    num = len(expected.ids)
    assert re.fullmatch(rf"{num - num_errors} of {num} samples predicted in \d+\.\d s", first)
    assert second == f"run {expected.run}"
    scores = dict(zip(expected.block_names, expected.expected_scores, strict=True))
    for blocks in filter(None, scores):
        count = expected.block_names.count(blocks)
        assert f"  with {blocks}: {count}, expected r2 {scores[blocks]:.3f}" in lines
    assert f"{num_errors} without a prediction, such as" in lines


def test_a_long_file_as_parquet_and_a_summary_as_json(serving: Serving) -> None:
    """More ids than fit into one request; rows come in the order of the file."""
    expected, num = serving.expected["bank"], len(serving.ids)
    _write_ids(serving.site.path / "long.csv", serving.ids * 60)
    process = serving.predict(
        "bank", "--out", "long.parquet", "--format", "json", "--deadline", "10", ids="long.csv"
    )
    frame = pl.read_parquet(serving.site.path / "long.parquet")
    assert len(frame) == 60 * num > 2000
    assert frame.schema["prediction"] == pl.String
    assert frame.schema["prob_red"] == pl.Float32
    assert frame.schema["expected_score"] == pl.Float64
    for start in (0, 59 * num):
        _check_rows(frame.slice(start, num).to_dicts(), expected, missing=None)
    assert frame["id"].to_list() == serving.ids * 60
    assert frame["blocks"].to_list() == [name or None for name in expected.block_names] * 60

    summary = json.loads(process.stdout)
    assert process.stderr == ""
    num_errors = sum(error is not None for error in expected.errors)
    assert summary["run"] == expected.run
    assert summary["runs"] == [expected.run]
    assert summary["task"] == "multiclass"
    assert summary["num_samples"] == len(frame)
    assert summary["num_errors"] == 60 * num_errors
    assert summary["num_predicted"] == 60 * (num - num_errors)
    assert summary["score_name"] == "accuracy"
    assert summary["peers"] == {"shop": "", "telco": ""}
    assert summary["out"] == "long.parquet"
    scores = dict(zip(expected.block_names, expected.expected_scores.tolist(), strict=True))
    assert summary["by_blocks"] == {
        blocks: {
            "num_samples": 60 * expected.block_names.count(blocks),
            "expected_score": scores[blocks],
        }
        for blocks in scores
        if blocks
    }


def test_when_all_ids_are_unknown_the_rows_are_written_and_the_exit_code_is_3(
    serving: Serving,
) -> None:
    (serving.site.path / "unknown.csv").write_text("person\nnobody\n\n007\n")
    arguments = ["predict", "--config", "bank.yaml", "--ids", "unknown.csv"]
    process = serving.run(*arguments, exit_code=3)
    assert _only_line(process) == (
        'no sample has a prediction; the first is "nobody": bank does not hold this sample'
    )
    rows = list(csv.DictReader(io.StringIO(process.stdout)))
    assert [row["id"] for row in rows] == ["nobody", "007"]
    assert {row["error"] for row in rows} == {"bank does not hold this sample"}
    assert {row["blocks"] for row in rows} == {""}

    process = serving.run(*arguments, "--out", "unknown.parquet", exit_code=3)
    assert _only_line(process).startswith("no sample has a prediction")
    frame = pl.read_parquet(serving.site.path / "unknown.parquet")
    assert frame["error"].to_list() == ["bank does not hold this sample"] * 2


@dataclass(frozen=True)
class Mistake:
    """A command that whoever is asked refuses, or nobody answers; {names} stand for addresses."""

    exit_code: int
    says: str
    command: str
    tls: str = ""
    """Whose certificate it shows."""


ASK = "predict --client {bank} --ids ids.csv"
MISTAKES = {
    "a client without a head": Mistake(
        8, "telco has no head .*; ask bank or shop$", "predict --config telco.yaml --ids ids.csv"
    ),
    "nobody there": Mistake(
        4, "nobody answers at {nobody}; is the daemon up", "predict --client {nobody} --ids ids.csv"
    ),
    "a peer's port": Mistake(
        6, "does not answer such questions", "predict --client {bank_peer} --ids ids.csv", "bank"
    ),
    "a coordinator's port": Mistake(
        5, "somebody else than expected", "predict --client {coordinator} --ids ids.csv", "bank"
    ),
    "a coordinator without tls": Mistake(
        4, "nobody answers .* both sides on TLS", "status --coordinator {coordinator}"
    ),
    "no certificate": Mistake(4, "nobody answers .* both sides on TLS", ASK),
    "another client's application": Mistake(5, "somebody else than expected", ASK, "shop/crm"),
    "an operator": Mistake(5, "operator/tester may not ask a client", ASK, "tester"),
    "status at the wrong port": Mistake(
        5, "somebody else than expected", "status --coordinator {bank}", "tester"
    ),
}  # fmt: skip


class BadCommands:
    """Starts commands with a mistake, some ahead of their tests, for there are two cores."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._processes: dict[str, Process] = {}
        self.names = {name: serving.address(name) for name in ROSTER}
        self.names["bank_peer"] = serving.clients["bank"].wait_ready()
        self.names["coordinator"] = serving.site.address
        self.names["nobody"] = free_address()

    def get(self, name: str) -> Process:
        names = list(MISTAKES)
        here = names.index(name)
        for each in names[here : here + 3]:
            if each not in self._processes:
                self._processes[each] = self._start(MISTAKES[each])
        return self._processes[name]

    def _start(self, mistake: Mistake) -> Process:
        arguments = mistake.command.format(**self.names).split()
        tls = self._serving.site.tls_options_of(mistake.tls) if mistake.tls else []
        return self._serving.start(*arguments, *tls)


@pytest.fixture(scope="module")
def bad_commands(serving: Serving) -> BadCommands:
    return BadCommands(serving)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_an_exit_code(name: str, bad_commands: BadCommands) -> None:
    mistake, process = MISTAKES[name], bad_commands.get(name)
    assert process.wait_exit() == mistake.exit_code, process.report()
    line = _only_line(process)
    assert re.search(mistake.says.format(**bad_commands.names), line), line
    assert process.stdout == ""


def test_a_failed_command_leaves_no_file(serving: Serving, bad_commands: BadCommands) -> None:
    (serving.site.path / "kept.csv").write_text("as it was\n")
    serving.run(
        *("predict", "--config", "telco.yaml", "--ids", "ids.csv"),
        *("--out", "kept.csv"),
        exit_code=8,
    )
    assert (serving.site.path / "kept.csv").read_text() == "as it was\n"
    names = [path.name for path in serving.site.path.iterdir()]
    assert not [name for name in names if name.endswith(".tmp") or name.startswith("rows")]


def test_status_of_the_coordinator(serving: Serving) -> None:
    arguments = ["status", "--coordinator", serving.site.address, *serving.site.tls_options]
    text, data = serving.start(*arguments), serving.start(*arguments, "--format", "json")
    assert (text.wait_exit(), data.wait_exit()) == (0, 0)
    status = json.loads(data.stdout)
    run = serving.expected["bank"].run
    assert status["federation"] == "trial"
    assert status["run"] is None
    assert not status["training"]
    assert not status["wanted"]
    assert status["waiting_for"] == []
    assert (status["last_run"], status["last_outcome"]) == (run, "finished")
    assert [client["client"] for client in status["clients"]] == ROSTER
    tables = {name: _train_ids(serving.site, name) for name in ROSTER}
    assert status["num_samples"] == len(set().union(*tables.values()))
    for client in status["clients"]:
        name = client["client"]
        assert client["up"]
        assert client["activity"] == "idle"
        assert client["model_run"] == run
        assert client["has_head"] == (LABELS[name] is not None)
        assert client["address"] == serving.clients[name].wait_ready()
        assert client["num_samples"] == len(tables[name])

    assert "federation trial, release " in text.stdout
    assert "no run is wanted" in text.stdout
    assert f"last run {run}: finished" in text.stdout
    for name in ROSTER:
        row = next(line for line in text.stdout.splitlines() if f" {name} " in line)
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells[:4] == [name, "yes", "idle", ""]
        assert run.startswith(cells[4].rstrip("…"))
        assert cells[5] == ("yes" if LABELS[name] else "")
        assert cells[6] == f"{len(tables[name]) / status['num_samples']:.1%}"


@pytest.mark.core
def test_status_of_a_client(serving: Serving) -> None:
    """Everything that it counts, it counts for one more request as it should."""
    arguments = ["status", "--config", "bank.yaml"]
    before = json.loads(serving.run(*arguments, "--format", "json").stdout)
    serving.predict("bank")
    text, data = serving.start(*arguments), serving.start(*arguments, "--format", "json")
    assert (text.wait_exit(), data.wait_exit()) == (0, 0)
    status, expected = json.loads(data.stdout), serving.expected["bank"]
    num_errors = sum(error is not None for error in expected.errors)
    num_predicted = len(expected.ids) - num_errors

    scores = json.loads((serving.site.path / "bank-state" / "scores.json").read_text())
    model = status["model"]
    assert (status["client"], status["federation"]) == ("bank", "trial")
    assert (status["activity"], status["training_run"]) == ("idle", None)
    assert status["has_head"]
    assert status["serve_problem"] is None
    assert (model["run"], model["task"]) == (expected.run, "multiclass")
    assert (model["roster"], model["heads"]) == (ROSTER, ["bank", "shop"])
    assert (model["score_name"], model["score"]) == ("accuracy", scores["overall"]["accuracy"])
    assert model["scores"] == {k: v["accuracy"] for k, v in scores["by_subset"].items()}
    test_ids = pl.read_csv(serving.site.path / "bank_test.csv")["id"]
    assert status["num_held"] == len(_train_ids(serving.site, "bank")) + len(test_ids)

    assert status["num_requests"] - before["num_requests"] == 1
    assert status["num_predicted"] - before["num_predicted"] == num_predicted
    assert status["num_sample_errors"] - before["num_sample_errors"] == num_errors
    used = {k: num - before["subsets"].get(k, 0) for k, num in status["subsets"].items()}
    names = [blocks for blocks in expected.block_names if blocks]
    assert used == {blocks: names.count(blocks) for blocks in names}
    assert [peer["client"] for peer in status["peers"]] == ["shop", "telco"]
    for then, now in zip(before["peers"], status["peers"], strict=True):
        assert now["available"]
        assert now["problem"] is None
        assert now["address"] == serving.clients[now["client"]].wait_ready()
        assert now["num_wanted"] - then["num_wanted"] == num_predicted
        num_there = sum(now["client"] in blocks for blocks in names)
        assert now["num_available"] - then["num_available"] == num_there

    assert text.stdout.startswith("bank of federation trial, release ")
    assert f"model of run {expected.run}, " in text.stdout
    assert f"{status['num_held']} samples held; {status['num_requests']} requests, " in text.stdout
    for blocks, num in status["subsets"].items():
        score = scores["by_subset"][blocks]["accuracy"]
        assert re.search(rf"│ {blocks} +│ +{score:.3f} │ +{num} │", text.stdout)
    for name in ("shop", "telco"):
        assert re.search(rf"│ {name} +│ yes ", text.stdout)


def test_status_tells_who_is_gone(serving: Serving) -> None:
    """Last but one in this file: it kills a client."""
    serving.clients["telco"].signal(signal.SIGKILL)
    serving.clients["telco"].wait_exit()
    with serving.clients["bank"].predictor() as predictor:
        eventually(lambda: not predictor.status()["peers"][1]["available"], "telco is missed")
        predictions = predictor.predict(serving.ids)
    assert predictions.peers["shop"] == ""
    assert predictions.peers["telco"]
    commands = [
        serving.start("status", "--config", "bank.yaml"),
        serving.start("status", "--coordinator", serving.site.address, *serving.site.tls_options),
        serving.start("predict", "--config", "bank.yaml", "--ids", "ids.csv"),
    ]
    assert [command.wait_exit() for command in commands] == [0, 0, 0]
    of_client, of_coordinator, predicted = commands
    assert re.search(r"│ shop +│ yes ", of_client.stdout)
    assert re.search(r"│ telco +│ (?!yes)\w+", of_client.stdout)
    assert re.search(r"│ telco +│ no ", of_coordinator.stdout)
    assert re.search(r"│ bank +│ yes ", of_coordinator.stdout)
    assert re.search(r"^  telco: \w+", predicted.stderr, re.MULTILINE)
    assert "bank,telco" not in predicted.stdout


@pytest.mark.core
def test_nobody_logs_a_traceback(serving: Serving) -> None:
    """Last in this file: it reads what the tests above have caused."""
    assert "Traceback" not in serving.site.report()
    assert serving.coordinator.alive


def _only_line(process: Process) -> str:
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    return lines[0]


def _train_ids(site: Site, name: str) -> set[str]:
    return set(pl.read_csv(site.path / f"{name}_train.csv")["id"])


def _check_rows(rows: list[dict[str, Any]], expected: Predictions, *, missing: str | None) -> None:
    """Compare rows of any format with what the Python predictor says."""
    assert [row["id"] for row in rows] == list(expected.ids)
    held = np.array([error is None for error in expected.errors])
    assert 2 < held.sum() < len(held)
    assert [row["error"] for row in rows] == [error or missing for error in expected.errors]
    assert [row["blocks"] for row in rows] == [blocks or missing for blocks in expected.block_names]
    kept = [row for row, is_held in zip(rows, held, strict=True) if is_held]
    for row, is_held in zip(rows, held, strict=True):
        empty = [key for key, value in row.items() if value == missing]
        assert is_held == (empty == ["error"])
    scores = np.array([row["expected_score"] for row in kept], dtype=float)
    np.testing.assert_array_equal(scores, expected.expected_scores[held])
    if expected.probabilities is None:
        values = np.array([row["prediction"] for row in kept], dtype=float)
        np.testing.assert_allclose(values, expected.labels[held].astype(float), rtol=1e-6)
        return
    assert [row["prediction"] for row in kept] == expected.labels[held].tolist()
    for name, column in zip(expected.classes, expected.probabilities[held].T, strict=True):
        found = np.array([row[f"prob_{name}"] for row in kept], dtype=float)
        np.testing.assert_allclose(found, column, rtol=0, atol=1e-6)
