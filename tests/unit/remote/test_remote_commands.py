"""predict, status and retrain: files in, rows out, and how each of them ends."""

import csv
import io
import json

import polars as pl
import pytest
from remote_fake import FakeCoordinator, FakePrediction, regression_to, response_to, served
from rich.console import Console

from laser_vfl.cli.predict import PredictOptions, parse_seconds, read_ids, run_predict
from laser_vfl.cli.retrain import run_retrain
from laser_vfl.cli.status import print_client, print_federation, run_status
from laser_vfl.core import errors
from laser_vfl.v1 import coordinator_pb2, prediction_pb2

NO_FILES = (None, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("200ms", 0.2), ("1.5s", 1.5), ("2s", 2.0), ("0.5", 0.5), (" 3 s", 3.0)]
)
def test_a_deadline_is_read(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["0", "0ms", "-1", "-1s", "soon", "", "1m", "nan", "inf", "1e3", "2 s s", "٣s"]
)
def test_a_deadline_that_is_none_is_a_config_error(text):
    with pytest.raises(errors.ConfigError, match=r"--deadline") as caught:
        parse_seconds(text)
    assert caught.value.exit_code == 2


def ids_in(content, tmp_path):
    return list(read_ids(io.BytesIO(content), tmp_path / "ids.csv"))


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (b"id\n1\n2\n", ["1", "2"]),
        (b"\xef\xbb\xbfid\r\n1\r\n2", ["1", "2"]),
        (b"customer\n007\n", ["007"]),
        (b'name,id\n"a, b",1\nc,\n', ["1", ""]),
        (b'id\n"x\ny"\n\n""\n \n', ["x\ny", "", " "]),
        (b"id\n", []),
        ("id\nJosé\n".encode(), ["José"]),
    ],
)
def test_ids_are_read(content, ids, tmp_path):
    assert ids_in(content, tmp_path) == ids


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ids.csv: the file is empty"),
        (b"\n1\n", "ids.csv:1: there is no header"),
        (b"1001\n1002\n", "ids.csv:1: there is no header"),
        (b"name,city\na,b\n", 'ids.csv:1: no column is called "id"'),
        (b"id,id\n1,2\n", 'ids.csv:1: 2 columns are called "id"'),
        (b"id;name\n1;a\n", "ids.csv:1: .* looks like many columns"),
        (b"id,name\n1,a\n2\n", "ids.csv:3: this row has 1 fields, the header has 2"),
        (b"id\n1\n2,3\n", "ids.csv:3: this row has 2 fields"),
        (b"id\n1\n\xff\xfe\n", "ids.csv:3: this line is not UTF-8"),
        (b'id\n1\n"2\n', "ids.csv:3: this line is not CSV"),
        (b"id\n" + b"1" * 2_000_000, "ids.csv:2: this line is too long"),
    ],
)
def test_a_file_that_is_wrong_is_a_data_error(content, said, tmp_path):
    with pytest.raises(errors.DataError, match=said) as caught:
        ids_in(content, tmp_path)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


@pytest.fixture
def daemon():
    return FakePrediction()


@pytest.fixture
def score(daemon, tmp_path):
    with served(daemon) as address:

        def run(ids, out=None, as_json=False, **options):
            path = tmp_path / "ids.csv"
            path.write_text("".join(f"{text}\n" for text in ["id", *ids]))
            out = tmp_path / out if out else None
            run_predict(PredictOptions(address, path, out=out, **options), as_json=as_json)
            return out

        yield run


HEADER = ["id", "prediction", "prob_a", "prob_b", "blocks", "expected_score", "error"]


def test_rows_on_stdout(score, capsys):
    score(["x", "?y", '"a,b"'])
    out, err = capsys.readouterr()
    assert list(csv.reader(out.splitlines())) == [
        HEADER,
        ["x", "b", "0.1", "0.9", "bank,shop", "0.75", ""],
        ["?y", "", "", "", "", "", "'=not held here"],
        ["a,b", "b", "0.1", "0.9", "bank,shop", "0.75", ""],
    ]
    assert "2 of 3 samples predicted" in err
    assert "telco: too slow" in err


def test_rows_as_json(score, daemon, capsys):
    daemon.answer = lambda request: response_to(request.ids, classes=("0", "1"), kind="number")
    score(["x", "?"], as_json=True)
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "id": "x",
        "prediction": 1,
        "prob_0": 0.1,
        "prob_1": 0.9,
        "blocks": "bank,shop",
        "expected_score": 0.75,
        "error": None,
    }
    assert second["prediction"] is second["prob_0"] is second["blocks"] is None
    assert second["error"] == "=not held here"


@pytest.mark.parametrize("out", ["p.csv", "p.parquet"])
def test_rows_in_a_file_are_in_order(score, daemon, capsys, out, tmp_path):
    ids = [f"{'?' if n % 1000 == 999 else ''}{n}" for n in range(6_500)]
    path = score(ids, out, as_json=True)
    frame = pl.read_csv(path, infer_schema=False) if out.endswith("csv") else pl.read_parquet(path)
    assert frame.columns == HEADER
    assert frame["id"].to_list() == ids
    assert frame["error"].null_count() == 6_494
    assert frame["prediction"].to_list()[998:1000] == ["b", None]
    summary = json.loads(capsys.readouterr().out)
    assert summary.pop("seconds") > 0
    assert summary == {
        "run": "run-1",
        "runs": ["run-1"],
        "task": "multiclass",
        "num_samples": 6_500,
        "num_predicted": 6_494,
        "num_errors": 6,
        "score_name": "accuracy",
        "by_blocks": {"bank,shop": {"num_samples": 6_494, "expected_score": 0.75}},
        "peers": {"shop": "", "telco": "too slow"},
        "out": str(path),
    }
    assert all(len(request.ids) <= 1_000 for request in daemon.requests)
    assert {request.deadline_s for request in daemon.requests} == {30.0}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.csv", out]


@pytest.mark.parametrize(
    ("answer", "dtype", "value"),
    [
        (lambda ids: response_to(ids, classes=("0", "1"), kind="number"), pl.Int64, 1),
        (lambda ids: response_to(ids, classes=("0", "1.5"), kind="number"), pl.Float64, 1.5),
        (lambda ids: response_to(ids, classes=("false", "true"), kind="boolean"), pl.Boolean, True),
        (regression_to, pl.Float64, 1.5),
    ],
)
def test_parquet_has_the_type_of_the_label(score, daemon, answer, dtype, value):
    daemon.answer = lambda request: answer(request.ids)
    frame = pl.read_parquet(score(["?", "x"], "p.parquet"))
    assert frame["prediction"].dtype == dtype
    assert frame["prediction"].to_list() == [None, value]
    probabilities = [name for name in frame.columns if name.startswith("prob_")]
    assert all(frame[name].dtype == pl.Float32 for name in probabilities)
    assert bool(probabilities) == (answer is not regression_to)


def test_a_summary_for_a_person(score, capsys):
    score(["x", "?y"], "p.csv")
    out, err = capsys.readouterr()
    assert "1 of 2 samples predicted" in out
    assert "with bank,shop: 1, expected accuracy 0.750" in out
    assert '"?y": =not held here' in out
    assert err == ""


def test_when_all_rows_fail_it_is_a_data_error_and_the_file_is_there(score, capsys):
    with pytest.raises(errors.DataError, match="no sample has a prediction") as caught:
        score(["?1", '""'], "p.parquet")
    assert caught.value.exit_code == 3
    assert capsys.readouterr().err == ""
    with pytest.raises(errors.DataError):
        score(["?1", '""'])
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err == ""


@pytest.mark.parametrize("out", [None, "p.csv", "p.parquet"])
def test_a_new_run_is_said_and_new_classes_end_it(score, daemon, capsys, out, tmp_path):
    ids = [str(n) for n in range(2_500)]
    daemon.answer = lambda request: response_to(
        request.ids, run="run-2" if request.ids[0] == "2000" else "run-1"
    )
    score(ids, out)
    captured = capsys.readouterr()
    assert "runs run-1, run-2" in (captured.out if out else captured.err)
    daemon.answer = lambda request: response_to(
        request.ids, classes=("a", "c") if request.ids[0] == "2000" else ("a", "b")
    )
    if out:
        (tmp_path / out).write_text("from before")
    with pytest.raises(errors.MismatchError, match="other classes while scoring; start again"):
        score(ids, out)
    if out:
        assert (tmp_path / out).read_text() == "from before"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.csv", out]


@pytest.mark.parametrize("out", [None, "p.csv", "p.parquet"])
def test_a_mistake_late_in_the_file_ends_it(score, out, tmp_path):
    ids = [*map(str, range(2_500)), "1,2"]
    with pytest.raises(errors.DataError, match=r"ids\.csv:2502: this row has 2 fields"):
        score(ids, out)
    assert [p.name for p in tmp_path.iterdir()] == ["ids.csv"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"out": "p.xlsx"}, errors.ConfigError),
        ({"out": "none/p.csv"}, errors.ConfigError),
        ({"out": "d.csv"}, errors.ConfigError),
        ({"deadline": "0"}, errors.ConfigError),
        ({"ids": []}, errors.DataError),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_asked(score, daemon, options, kind, tmp_path):
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(kind):
        score(**{"ids": ["x"], **options})
    assert not daemon.requests


def test_ids_that_are_not_there_are_a_data_error(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(errors.DataError, match="cannot be read"):
            run_predict(PredictOptions("127.0.0.1:7000", path), as_json=False)


def federation(**fields):
    clients = [
        coordinator_pb2.ClientSummary(
            client="bank", up=True, activity="training", next_step=3, num_steps=9, num_samples=3
        ),
        coordinator_pb2.ClientSummary(client="shop"),
    ]
    return coordinator_pb2.FederationStatus(
        **{"federation": "churn", "clients": clients, "num_samples": 4, **fields}
    )


def shown(print_status, status):
    console = Console(file=io.StringIO(), width=120)
    print_status(status, console)
    return console.file.getvalue()


def test_the_status_of_a_federation(capsys):
    status = federation(run="run-1", training=True, seed=7)
    with served(coordinator=FakeCoordinator(status)) as address:
        run_status(address, None, NO_FILES, as_json=True)
        asked = json.loads(capsys.readouterr().out)
        run_status(address, None, NO_FILES, as_json=False)
    assert "training run run-1 with seed 7" in capsys.readouterr().out
    assert asked["last_run"] is None
    assert asked["clients"][1]["address"] is None
    text = shown(print_federation, asked)
    assert "3 of 9" in text
    assert "75.0%" in text


def test_the_status_of_a_client(capsys):
    daemon = FakePrediction()
    daemon.status = prediction_pb2.ClientStatus(
        client="bank",
        activity="serving [bold]\x1b[31m",
        model=prediction_pb2.ServedModel(
            run="run-1",
            task="binary",
            roster=["bank", "shop"],
            score_name="auroc",
            score=0.875,
            scores=[prediction_pb2.SubsetScore(blocks=3, score=0.5)],
        ),
        peers=[
            prediction_pb2.PeerStatus(client="shop", problem="out of reach", num_wanted=4),
            prediction_pb2.PeerStatus(client="telco", available=True, usual_s=0.0125),
        ],
        subsets=[prediction_pb2.SubsetCount(blocks=1, num_predicted=6)],
    )
    with served(daemon) as address:
        run_status(None, address, NO_FILES, as_json=True)
    text = shown(print_client, json.loads(capsys.readouterr().out))
    for said in ("model of run run-1", "auroc", "0.875", "0.500", "out of reach", "12.5", "0.0%"):
        assert said in text
    assert "[bold]" in text
    assert "\x1b" not in text
    assert "no model yet" in shown(print_client, {**_empty_client(), "model": None})


def _empty_client():
    counts = dict.fromkeys(("num_held", "num_requests", "num_predicted", "num_sample_errors"), 0)
    words = dict.fromkeys(("client", "federation", "release", "activity"), "")
    return {**counts, **words, "training_run": None, "serve_problem": None, "peers": []}


def test_a_status_is_of_one_daemon():
    for chosen in ((None, None), ("127.0.0.1:1", "127.0.0.1:2")):
        with pytest.raises(errors.ConfigError, match="--coordinator or --client"):
            run_status(*chosen, NO_FILES, as_json=False)


def retrained(*statuses, seed=None, timeout="5s"):
    fake = FakeCoordinator(*statuses)
    with served(coordinator=fake) as address:
        run_retrain(address, seed, timeout, NO_FILES, as_json=True)
    return fake


@pytest.fixture(autouse=True)
def _poll_fast(monkeypatch):
    monkeypatch.setattr("laser_vfl.cli.retrain.POLL_S", 0.01)


def test_retrain_waits_until_the_run_is_training(capsys):
    before = federation(last_run="run-1", last_outcome="finished", seed=7)
    gathering = federation(last_run="run-1", last_outcome="finished", wanted=True, seed=99)
    training = federation(last_run="run-1", run="run-2", training=True, seed=99)
    assert retrained(before, gathering, gathering, training).seeds == [None]
    assert json.loads(capsys.readouterr().out) == {"run": "run-2", "seed": 99, "state": "training"}


def test_retrain_notices_a_run_that_was_quick(capsys):
    before = federation(last_run="run-1", last_outcome="finished")
    after = federation(last_run="run-2", last_outcome="finished", seed=5)
    assert retrained(before, after, seed=5).seeds == [5]
    assert json.loads(capsys.readouterr().out) == {"run": "run-2", "seed": 5, "state": "finished"}
    stopped = federation(last_run="run-2", last_outcome="lost shop", seed=5)
    with pytest.raises(errors.TrainingStopped, match="run run-2 has stopped: lost shop"):
        retrained(before, stopped, seed=5)


def test_retrain_gives_up_and_says_who_is_waited_for():
    waiting = federation(wanted=True, seed=99, waiting_for=["shop"])
    with pytest.raises(errors.TrainingStopped) as caught:
        retrained(federation(), waiting, timeout="50ms")
    assert str(caught.value) == (
        "asked for, but the run has not started: waiting for shop; it starts when they are there"
    )
    assert caught.value.exit_code == 7


def test_a_seed_has_limits():
    with pytest.raises(errors.ConfigError, match="seed"):
        retrained(federation(), seed=2**63)
