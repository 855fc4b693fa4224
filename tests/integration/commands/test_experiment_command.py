"""`laser-vfl experiment` as people run it: interrupted, resumed, with runs that fail or die."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons.harness import eventually

ROOT = Path(__file__).parents[3]
ENGINE = "tests.support.fakes.stand_in_engine:run_case"
ASKED = ["--methods", "local,laser", "--p-train", "0,0.5", "--seeds", "2", "--engine", ENGINE]
KEPT = "are kept in {out}, and the same command goes on from there"


def command(*words, **variables):
    """Return a started command whose engine is the stand-in, which heeds the variables."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "laser_vfl", "experiment", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


def run(*words, **variables):
    """Run a command to its end."""
    process = command(*words, **variables)
    out, err = process.communicate(timeout=180)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def keys(path):
    """Return the runs in a file of results or in the stand-in's log, in order."""
    text = path.read_text() if path.exists() else ""
    lines = text.splitlines()
    return [json.loads(line)["key"] if line.startswith("{") else line for line in lines]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_table_interrupted_and_resumed_equals_one_that_was_not(tmp_path, number):
    out, log = tmp_path / "out", tmp_path / "log"
    asked = ["table", "--out", out, *ASKED, "--jobs", "2", "--no-plot"]
    process = command(*asked, STAND_IN_HANGS_FROM="1", STAND_IN_LOG=str(log))
    results = out / "results.jsonl"
    # Four runs of seed 0 have ended with three scores each, and those of seed 1 hang.
    eventually(lambda: len(keys(results)) == 12 and len(keys(log)) == 6, "seed 0 and two more")
    process.send_signal(number)
    said, err = process.communicate(timeout=180)
    assert (process.returncode, said) == (128 + number, "")
    assert "interrupted; 4 of 8 runs " + KEPT.format(out=out) in err
    assert len(keys(results)) == 12

    log.unlink()
    resumed = run(*asked, "--format", "json", STAND_IN_LOG=str(log))
    assert resumed.returncode == 0
    assert "8 runs, 4 of them done already" in resumed.stderr
    assert len(keys(log)) == 4
    assert all("seed=1" in key for key in keys(log))
    whole = run("table", "--out", tmp_path / "whole", *ASKED, "--no-plot", "--format", "json")
    assert cells(resumed) == cells(whole)
    again = run(*asked, STAND_IN_LOG=str(log))
    assert "8 of them done already" in again.stderr
    assert len(keys(log)) == 4


def cells(result):
    """Return the cells of a report as a set of texts."""
    return {json.dumps(cell, sort_keys=True) for cell in json.loads(result.stdout)["cells"]}


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    asked = ["table", "--out", tmp_path, *ASKED, "--no-plot"]
    failed = run(*asked, STAND_IN_FAILS="laser 1")
    assert failed.returncode == 3
    said = "failed: there is no such table; look for it"
    assert f"hapt laser, p_train 0, seed 1: {said}" in failed.stderr
    assert "2 of 8 runs failed" in failed.stderr
    assert "| Local | 7" in failed.stdout
    assert "DataError" in (tmp_path / "failures.log").read_text()
    assert len(keys(tmp_path / "results.jsonl")) == 3 * 6
    assert run(*asked).returncode == 0
    assert len(keys(tmp_path / "results.jsonl")) == 3 * 8


def test_a_process_that_dies_costs_its_run_only(tmp_path):
    died = run("table", "--out", tmp_path, *ASKED, "--no-plot", STAND_IN_DIES="local 0")
    assert died.returncode == 70
    assert died.stderr.count("its process died (exit code 9)") == 2
    assert len(keys(tmp_path / "results.jsonl")) == 3 * 6


def test_a_table_is_written_drawn_and_shown_again(tmp_path):
    made = run("table", "--out", tmp_path, *ASKED)
    assert made.returncode == 0
    assert "| LASER-VFL | **8" in made.stdout
    assert "[8/8]" in made.stderr
    report, picture = tmp_path / "report.md", tmp_path / "hapt.png"
    assert report.read_text() == made.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    report.unlink()
    picture.unlink()
    shown = run("show", tmp_path)
    assert (shown.returncode, shown.stdout) == (0, made.stdout)
    assert picture.exists()


def test_another_experiment_does_not_go_to_the_same_place(tmp_path):
    assert run("table", "--out", tmp_path, *ASKED, "--no-plot").returncode == 0
    other = run("nonuniform", "--out", tmp_path, *ASKED, "--no-plot")
    assert other.returncode == 2
    assert "has the results of `experiment table`" in other.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table", "--dataset", "hpat"], '--dataset: there is no "hpat"; did you mean hapt?'),
        (
            ["table", "--engine", "grcp"],
            '--engine: there is no "grcp"; use oracle, stacked, grpc, or',
        ),
        (["ablation", "--kind", "batch"], '--kind: there is no "batch"; did you mean batching?'),
        (["table", "--set", "training.epcohs=2"], "unknown key; did you mean epochs?"),
    ],
)
def test_a_mistake_is_told_before_anything_is_made(tmp_path, words, said):
    refused = run(*words, "--out", tmp_path / "out")
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_nothing_is_begun(tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError")
    refused = run("table", "--out", tmp_path / "out", *ASKED, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert refused.returncode == 2
    assert "pip install 'laser-vfl[plot]', or add --no-plot" in refused.stderr


def test_a_real_federation_for_a_run(tmp_path):
    asked = ["--dataset", "digits", "--methods", "laser-mixed", "--clients", "2", "--seeds", "1"]
    asked += ["--p-train", "0.1", "--p-test", "0.1", "--epochs", "1", "--no-plot"]
    done = run("table", "--out", tmp_path, *asked, "--engine", "grpc")
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert line["engine"] == "grpc"
    # 99 % of the 1347 training samples are somewhere, in batches of 64.
    assert line["num_steps"] == 21
    assert set(line["by_client"]) == {"bank", "shop"}
    assert 0.1 < line["score"] < 1
    assert "- Engine: grpc." in done.stdout


def test_a_real_federation_does_not_guess_for_those_that_have_no_head(tmp_path):
    asked = ["--dataset", "digits", "--methods", "standard", "--p-test", "0.1", "--engine", "grpc"]
    done = run("table", "--out", tmp_path, *asked, "--seeds", "1", "--no-plot")
    assert done.returncode == 2
    assert "scores Standard VFL only where no block is missing" in done.stderr


@pytest.mark.timeout(400)
def test_a_table_of_two_epochs_with_the_oracle_interrupted_and_resumed(tmp_path):
    asked = ["table", "--dataset", "digits", "--methods", "local,laser", "--seeds", "1"]
    asked += ["--p-train", "0,0.5", "--p-test", "0,0.5", "--epochs", "2", "--jobs", "1"]
    process = command(*asked, "--out", tmp_path / "out", "--no-plot")
    eventually(lambda: len(keys(tmp_path / "out" / "results.jsonl")) >= 2, "the first run")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)
    assert process.returncode == 130
    resumed = run(*asked, "--out", tmp_path / "out", "--format", "json")
    assert resumed.returncode == 0, resumed.stderr
    assert ", 0 of them done" not in resumed.stderr
    whole = run(*asked, "--out", tmp_path / "whole", "--no-plot", "--format", "json")
    assert scores(resumed) == scores(whole)
    assert len(scores(whole)) == 8
    assert (tmp_path / "out" / "digits.png").exists()


def scores(result):
    """Return the scores of a report by cell; times differ from run to run."""
    return {
        (cell["method"], cell["p_train"], cell["p_test"]): cell["mean"]
        for cell in json.loads(result.stdout)["cells"]
    }
