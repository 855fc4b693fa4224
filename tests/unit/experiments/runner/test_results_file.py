"""Results survive: torn lines, two commands at once, and what counts as done."""

import json

import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.report.cells import outdone
from laser_vfl.experiments.runner.results_file import ResultsFile, missing, read_lines
from tests.support.fakes.stand_in_engine import run_case

CASE = Case("hapt", "laser", 0.5, (0.0, 0.1, "beta"), 3, changes=(("training.epochs", 2),))


def write(directory, case=CASE, settings="s", engine="oracle"):
    with ResultsFile(directory) as file:
        file.append(case, settings, engine, run_case(case))


def left(directory, case=CASE, settings="s", engine="oracle"):
    found = missing([case], read_lines(directory), lambda _: settings, engine)
    return [each.p_test for each in found]


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "new")
    lines = read_lines(tmp_path / "new")
    assert [line["p_test"] for line in lines] == [0.0, 0.1, "beta"]
    assert lines[0]["score"] == run_case(CASE)[0]["score"]
    assert lines[0]["changes"] == {"training.epochs": 2}


def test_a_run_is_done_with_the_same_settings_and_engine_only(tmp_path):
    write(tmp_path)
    assert left(tmp_path) == []
    assert left(tmp_path, settings="other") == [CASE.p_test]
    assert left(tmp_path, engine="grpc") == [CASE.p_test]
    assert left(tmp_path, Case("hapt", "laser", 0.5, (0.0, 0.2), 3, changes=CASE.changes)) == [
        (0.2,)
    ]


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_torn_last_line_is_not_there(tmp_path, cut):
    write(tmp_path)
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert left(tmp_path) == [("beta",)]
    write(tmp_path, Case("hapt", "laser", 0.5, ("beta",), 3, changes=CASE.changes))
    assert left(tmp_path) == []
    assert [json.loads(line)["p_test"] for line in path.read_text().splitlines()] == [
        0.0,
        0.1,
        "beta",
    ]


def test_a_line_that_is_no_result_is_named(tmp_path):
    write(tmp_path)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"score": 1}\n')
    with pytest.raises(ConfigError, match=r"results.jsonl:4: this is no result"):
        read_lines(tmp_path)


def test_two_commands_cannot_write_at_once(tmp_path):
    with ResultsFile(tmp_path), pytest.raises(ConfigError, match="another command"):
        ResultsFile(tmp_path).__enter__()
    write(tmp_path)


def test_a_directory_that_cannot_be_made_is_an_error_for_people(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="give another --out"):
        ResultsFile(tmp_path / "file" / "out").__enter__()


def test_settings_that_were_had_before_count_again(tmp_path):
    """Otherwise the report would show the scores of other settings than were asked for."""

    def again(settings):
        lines = read_lines(tmp_path)
        return outdone([CASE], lines, lambda _: settings, "oracle")

    write(tmp_path, settings="first")
    assert again("first") == []
    write(tmp_path, settings="second")
    found = again("first")
    assert [(line["settings"], line["p_test"]) for line in found] == [
        ("first", p) for p in CASE.p_test
    ]
    with ResultsFile(tmp_path) as file:
        for line in found:
            file.append_line(line)
    assert again("first") == []
    assert left(tmp_path, settings="first") == []
    assert len(again("second")) == 3
