"""What is told of columns and labels: how they are read, and what looks wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from laser_vfl.data import Encoding, LabelEncoding, Table, TableSpec
from laser_vfl.data.columns.column_spec import ColumnSpec
from laser_vfl.data.table_report import report_of, surprises, without_values

SPEC = TableSpec(id="id", label="y")
NUM_ROWS = 200
IS_YES = np.random.default_rng(7).permutation(NUM_ROWS) % 2
FLAGS = ["yes" if flag else "no" for flag in IS_YES]


def table(values, labels=FLAGS, untyped=True, **spec):
    frame = pl.DataFrame(values)
    if untyped:
        frame = frame.cast(pl.String)
    ids = list(map(str, range(len(frame))))
    series = pl.Series("y", labels[: len(frame)])
    told = replace(SPEC, **spec)
    return Table(Path("t.csv"), told, ids, tuple(frame.columns), frame, series, untyped)


def report(values, **keys):
    read = table(values, **keys)
    return report_of(read, Encoding.fit(read), LabelEncoding.fit(read, read.spec))


def codes(values, **keys):
    (column,) = report({"a": values}, **keys).columns
    return [remark.code for remark in column.remarks]


def test_every_column_is_told_of():
    rng = np.random.default_rng(0)
    found = report(
        {
            "dest": [f"D{row % 60:02}" for row in range(NUM_ROWS - 20)] + ["rare", *["D00"] * 19],
            "tail": [f"N{row}" for row in range(NUM_ROWS)],
            "dep": [f"2013-{row % 12 + 1:02}-01" for row in range(NUM_ROWS)],
            "fare": [None, *rng.normal(size=NUM_ROWS - 1).tolist()],
        },
        scaling="quantile",
    )
    told = {column.name: column for column in found.columns}
    assert [column.type for column in found.columns] == [
        "category",
        "left out",
        "datetime",
        "number",
    ]
    dest = told["dest"]
    assert (dest.num_values, dest.num_kept) == (61, 1)
    assert dest.dropped_share == pytest.approx(1 - 22 / 200)
    assert [remark.code for remark in dest.remarks] == ["values_dropped"]
    assert told["dep"].scaling == "age, month, weekday"
    assert (told["fare"].scaling, told["fare"].missing_share) == ("quantile", 1 / 200)
    assert [remark.code for remark in told["tail"].remarks] == ["ids"]
    assert found.summary == (
        '4 columns: 1 category, 1 datetime, 1 number; "dest" keeps 1 of 61 values; left out: "tail"'
    )
    assert len(found.warnings) == 1
    assert {"name", "type", "values", "values_kept", "missing_share"} <= dest.to_json().keys()


def test_constants_and_leaks():
    assert codes(["7"] * NUM_ROWS) == ["constant"]
    assert codes(["x"] * NUM_ROWS) == ["constant"]
    noise = np.random.default_rng(0).normal(size=NUM_ROWS)
    flags = IS_YES
    assert codes((10 * flags + noise).tolist()) == ["leak"]
    assert codes([f"group {flag}" for flag in flags]) == ["leak"]
    assert codes((flags + 2 * noise).tolist()) == []
    amounts = (3 * noise + 1).tolist()
    assert codes(noise.tolist(), labels=amounts, task="regression") == ["leak"]
    assert codes(np.roll(noise, 1).tolist(), labels=amounts, task="regression") == []


def test_a_category_of_rare_values_alone_is_no_constant():
    spec = {"a": ColumnSpec()}
    zips = [f"zip {row // 2}" for row in range(NUM_ROWS)]
    assert codes(zips, columns=spec) == ["values_dropped", "rare_values"]


def test_numbers_and_dates_that_are_text():
    numbers = [str(row % 20) for row in range(NUM_ROWS)]
    assert codes([*numbers[:-1], "unknown"]) == ["values_dropped", "numbers_as_text"]
    assert codes(numbers, untyped=False) == ["numbers_as_text"]
    assert codes([f"0{number}" for number in numbers]) == [], "codes"
    dates = [f"2013-01-{row % 20 + 1:02}" for row in range(NUM_ROWS)]
    assert codes([*dates[:-1], "soon"]) == ["values_dropped", "dates_as_text"]
    either = [f"{row % 12 + 1:02}/{row % 5 + 1:02}/2013" for row in range(NUM_ROWS)]
    assert codes(either) == ["ambiguous_dates"]
    spec = {"a": ColumnSpec("datetime", format="%m/%d/%Y")}
    assert codes(either, columns=spec) == []


def test_the_decimal_sign_is_told():
    halves = [f"{row},5" for row in range(NUM_ROWS)]
    assert codes(halves) == ["decimal"]
    assert codes([*halves[1:], "1.234"]) == ["decimal", "ambiguous_numbers"]
    assert codes([*halves[2:], "1.234", "1.234,5"]) == ["decimal"]
    assert codes([*halves[1:], "1,500"]) == ["decimal"]
    thousands = [f"{row % 9 + 1},{row + 100}" for row in range(NUM_ROWS)]
    assert codes(thousands) == ["decimal", "ambiguous_numbers"]
    mixed = [f"{row % 20},5" if row % 2 else f"0.{row % 20 + 100}" for row in range(NUM_ROWS)]
    assert codes(mixed) == ["numbers_as_text"]
    (remark,) = report({"a": halves}, labels=thousands).label
    assert remark.code == "ambiguous_numbers"


def test_labels_that_are_written_in_several_ways_and_rare_classes():
    labels = ["no"] * 100 + ["yes"] * 60 + ["YES"] * 36 + ["maybe"] * 4
    found = report({"a": np.random.default_rng(0).normal(size=NUM_ROWS)}, labels=labels)
    assert [remark.code for remark in found.label] == ["classes_alike", "rare_classes"]
    assert '"YES" and "yes" are 2 classes of 4' in found.label[0].text
    assert '"maybe" (4)' in found.label[1].text
    assert report({"a": ["1", "2"] * 100}).label == ()


def test_an_array_has_no_columns():
    array = Table(Path("t"), SPEC, ["1", "2"], ("x",), np.eye(2), pl.Series("y", [0, 1]), False)
    assert report_of(array, Encoding.fit(array), None).columns == ()


def test_a_column_of_which_no_value_was_in_training():
    encoding = Encoding.fit(table({"a": ["x", "y"] * 100, "b": ["1", "2"] * 100}))
    other = table({"a": ["X", "Z"], "b": ["1", None]})
    (line,) = surprises(other, encoding, encoding.apply(other))
    assert '"a"' in line
    known = table({"a": ["x", "Z"], "b": ["1", None]})
    assert surprises(known, encoding, encoding.apply(known)) == []


def test_rows_without_any_value_are_never_silent():
    encoding = Encoding.fit(table({"a": ["x", "y"] * 100, "b": ["1", "2"] * 100}))
    blank = table({"a": ["x", None, None], "b": [None, None, None]})
    assert without_values(blank, encoding).tolist() == [False, True, True]
    (line,) = surprises(blank, encoding, encoding.apply(blank))
    assert "2 of 3 rows have no value in any column, the first is row 2" in line
    rows = np.array([[np.nan, 1.0], [np.nan, np.nan]])
    array = Table(Path("t"), SPEC, ["1", "2"], ("x",), rows, None, untyped=False)
    assert without_values(array, Encoding.fit(array)).tolist() == [False, True]


def test_the_report_of_a_million_rows_needs_no_text():
    numbers = table({"a": pl.Series(np.random.default_rng(0).normal(size=50))}, untyped=False)
    (column,) = report_of(numbers, Encoding.fit(numbers), None).columns
    assert (column.type, column.missing_share) == ("number", 0.0)
