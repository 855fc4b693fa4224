"""predict: ids in, rows out, and how it ends."""

import csv
import json

import polars as pl
import pytest

from laser_vfl.cli.predict.predict_command import PredictOptions, run_predict
from laser_vfl.core import errors
from tests.support.fakes.remote_fake import FakePrediction, regression_to, response_to, served

pytestmark = pytest.mark.core


@pytest.fixture
def daemon():
    return FakePrediction()


@pytest.fixture
def score(daemon, tmp_path, monkeypatch):
    monkeypatch.setattr("laser_vfl.cli.ids_file.NUM_IDS_PER_REQUEST", 100)
    with served(daemon) as address:

        def run(ids, out=None, as_json=False, **options):
            path = tmp_path / "ids.csv"
            path.write_text("".join(f"{text}\n" for text in ["id", *ids]))
            out = tmp_path / out if out else None
            run_predict(PredictOptions(path, address, out=out, **options), as_json=as_json)
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
    ids = [f"{'?' if n % 100 == 99 else ''}{n}" for n in range(650)]
    path = score(ids, out, as_json=True)
    frame = pl.read_csv(path, infer_schema=False) if out.endswith("csv") else pl.read_parquet(path)
    assert frame.columns == HEADER
    assert frame["id"].to_list() == ids
    assert frame["error"].null_count() == 644
    assert frame["prediction"].to_list()[98:100] == ["b", None]
    summary = json.loads(capsys.readouterr().out)
    assert summary.pop("seconds") > 0
    assert summary == {
        "run": "run-1",
        "runs": ["run-1"],
        "task": "multiclass",
        "num_samples": 650,
        "num_predicted": 644,
        "num_errors": 6,
        "score_name": "accuracy",
        "by_blocks": {"bank,shop": {"num_samples": 644, "expected_score": 0.75}},
        "peers": {"shop": "", "telco": "too slow"},
        "num_lacking": 0,
        "num_lacking_up": 0,
        "lacking": {},
        "out": str(path),
    }
    assert all(len(request.ids) <= 100 for request in daemon.requests)
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
    ids = [str(n) for n in range(250)]
    daemon.answer = lambda request: response_to(
        request.ids, run="run-2" if request.ids[0] == "200" else "run-1"
    )
    score(ids, out)
    captured = capsys.readouterr()
    assert "runs run-1, run-2" in (captured.out if out else captured.err)
    daemon.answer = lambda request: response_to(
        request.ids, classes=("a", "c") if request.ids[0] == "200" else ("a", "b")
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
    ids = [*map(str, range(250)), "1,2"]
    with pytest.raises(errors.DataError, match=r"ids\.csv:252: this row has 2 fields"):
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
            run_predict(PredictOptions(path, "127.0.0.1:7000"), as_json=False)
