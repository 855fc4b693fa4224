"""How columns are read: numbers, categories, dates and booleans, and what is left out."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.errors import DataError
from laser_vfl.data import Encoding, Table, TableSpec, read_table
from laser_vfl.data.columns.column_spec import ColumnSpec

SPEC = TableSpec(id="id")


def csv(folder: Path, text: str, name: str = "t.csv", spec: TableSpec = SPEC) -> Table:
    path = folder / name
    path.write_text(text)
    return read_table(path, spec)


def column(*values: str) -> str:
    return "id,a\n" + "".join(f'{row},"{value}"\n' for row, value in enumerate(values))


def typed(values: dict[str, object], untyped: bool = False, **spec: object) -> Table:
    frame = pl.DataFrame(values)
    ids = list(map(str, range(len(frame))))
    told = replace(SPEC, **spec)
    return Table(Path("t.parquet"), told, ids, tuple(values), frame, None, untyped=untyped)


def untyped(*values: str | None, **spec: object) -> Table:
    series = pl.Series("a", list(values), dtype=pl.String)
    return typed({"a": series}, untyped=True, **spec)


def asked(**spec: object) -> dict[str, ColumnSpec]:
    return {"a": ColumnSpec(**spec)}


def stored(encoding: Encoding) -> dict[str, dict[str, object]]:
    return {part["name"]: part for part in encoding.to_json()["columns"]}


def kinds(encoding: Encoding) -> list[object]:
    return [part["kind"] for part in encoding.to_json()["columns"]]


def test_missing_numbers_are_imputed_and_marked(tmp_path):
    train = csv(tmp_path, "id,a,b\n1,1,5\n2,3,6\n3,,5\n4,NA,6\n")
    encoding = Encoding.fit(train)
    assert encoding.form.order == (0, 0, 0)
    block = encoding.apply(train)
    assert (block.dtype, block.flags["C_CONTIGUOUS"]) == (np.float32, True)
    assert block.tolist() == [[-1, 0, -1], [1, 0, 1], [0, 1, -1], [0, 1, 1]]
    test = csv(tmp_path, "id,extra,b,a\n9,q,7,5\n8,q,?,\n", "test.csv")
    assert encoding.apply(test).tolist() == [[3, 0, 3], [0, 1, 0]]


def test_categories_have_a_place_for_unseen_and_one_for_missing():
    encoding = Encoding.fit(untyped("b", "b", " a", "c", None))
    assert stored(encoding)["a"]["values"] == ["b", "a", "c"]
    assert (encoding.form.order, encoding.row_shape, encoding.input_shape) == ((5,), (1,), (5,))
    found = encoding.apply(untyped("c", "new", "", "a ", "?", None))
    assert found[:, 0].tolist() == [4, 0, 1, 3, 1, 1]


def test_rare_values_are_unseen_where_there_are_many():
    few = Encoding.fit(untyped(*"abcdefghij", "a"))
    assert len(stored(few)["a"]["values"]) == 10
    names = [f"v{value:02}" for value in range(40)]
    many = Encoding.fit(untyped(*names[:30] * 5, *names[30:] * 4))
    part = stored(many)["a"]
    assert part["values"] == names[:30]
    assert (part["num_values"], part["max_values"], part["min_rows"]) == (40, 1000, 5)
    capped = Encoding.fit(untyped(*names * 5, columns=asked(max_values=7)))
    assert stored(capped)["a"]["values"] == names[:7]


def test_a_hundred_thousand_categories():
    values = [f"v{row // 2}" for row in range(200_000)]
    table = untyped(*values)
    with pytest.raises(DataError, match=r'no column is left to learn from: "a" \(rare_values\)'):
        Encoding.fit(table)
    some = typed({"a": table.features["a"], "b": np.arange(200_000) % 7}, untyped=True)
    encoding = Encoding.fit(some)
    assert stored(encoding)["a"] == {"name": "a", "kind": "omitted", "reason": "rare_values"}
    often = untyped(*[f"v{row % 100_000}" for row in range(500_000)])
    encoding = Encoding.fit(often)
    assert len(stored(encoding)["a"]["values"]) == 1000
    assert encoding.apply(often).shape == (500_000, 1)
    all_of_them = Encoding.fit(
        replace(often, spec=replace(SPEC, columns=asked(max_values=100_000)))
    )
    assert encoding.apply(often).max() == 1001
    assert all_of_them.apply(often).max() == 100_001


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["1,5", "-2,25", "3"], [1.5, -2.25, 3]),
        (["1.234,5", "2,0", "1.000.000"], [1234.5, 2, 1e6]),
        (["1,234.5", "2", "1,000,000"], [1234.5, 2, 1e6]),
        (["1e3", " 2 ", "0.5"], [1000, 2, 0.5]),
    ],
)
def test_decimals_and_thousands(values, wanted):
    encoding = Encoding.fit(untyped(*values, scaling="none"))
    assert encoding.apply(untyped(*values))[:, 0].tolist() == wanted
    assert encoding.apply(typed({"a": [7.5]}))[:, 0].tolist() == [7.5]


def test_a_point_beside_decimal_commas_is_for_thousands_alone():
    encoding = Encoding.fit(untyped("1,5", "-2,25", "1.234", scaling="none"))
    assert stored(encoding)["a"]["decimal"] == ","
    assert encoding.apply(untyped("1,5", "1.234", "10.000,5"))[:, 0].tolist() == [
        1.5,
        1234,
        10000.5,
    ]
    for text in ("0.125", "51.25", "1.5", "1234.567", "01.234"):
        with pytest.raises(DataError, match='row 1 of column "a" is text'):
            encoding.apply(untyped(text))
    assert stored(Encoding.fit(untyped("1,5", "0.125")))["a"]["kind"] == "category"
    small = Encoding.fit(untyped("0,125", "1,234", scaling="none"))
    assert small.apply(untyped("0,125", "1,234"))[:, 0] == pytest.approx([0.125, 1.234])


def test_what_is_neither_yes_nor_no_is_named():
    encoding = Encoding.fit(untyped("yes", "no"))
    with pytest.raises(DataError, match="is neither yes nor no"):
        encoding.apply(untyped("maybe"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["yes", "NO", "Yes"], "boolean"),
        (["true", "False"], "boolean"),
        (["t", "y"], "category"),
        (["yes", "no", "maybe"], "category"),
        (["007", "12"], "category"),
        (["0", "1"], "number"),
        (["2013-01-05", "2013-02-28"], "datetime"),
        (["5.1.2013", "28.2.2013"], "datetime"),
        (["2013-01-05", "soon"], "category"),
    ],
)
def test_what_text_is_read_as(values, kind):
    encoding = Encoding.fit(untyped(*values))
    assert kinds(encoding) == [kind]
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert again.apply(untyped(*values)).tobytes() == encoding.apply(untyped(*values)).tobytes()


def test_booleans_are_numbers():
    encoding = Encoding.fit(untyped("true", "False", "TRUE", "false"))
    assert encoding.apply(untyped("true", "0", "1", "na"))[:, 0].tolist() == [1, -1, 1, 0]
    assert encoding.apply(typed({"a": [True, False]})).tolist() == [[1], [-1]]


def test_dates_become_age_year_and_what_comes_round():
    days = [date(2012, 12, 31), date(2013, 1, 1), date(2013, 6, 30), None]
    encoding = Encoding.fit(typed({"a": days}))
    part = stored(encoding)["a"]
    assert [p["part"] for p in part["linear"]] == ["age", "year"]
    assert part["cyclic"] == ["month", "weekday"]
    assert part["reference"] == (date(2013, 6, 30) - date(1970, 1, 1)).days
    block = encoding.apply(typed({"a": days}))
    assert block.shape == (4, 7)
    age, year, month, weekday = block[:, 0], block[:, 1], block[:, 2:4], block[:, 4:6]
    assert age[0] > age[1] > age[2]
    assert year[0] < year[1] == year[2]
    np.testing.assert_allclose(month[1], [0, 1], atol=1e-6)
    np.testing.assert_allclose(month[2], [np.sin(5 / 6 * np.pi), np.cos(5 / 6 * np.pi)], atol=1e-6)
    np.testing.assert_allclose(weekday[0], [0, 1], atol=1e-6, err_msg="a Monday")
    assert block[3].tolist() == [0, 0, 0, 0, 0, 0, 1]
    text = encoding.apply(untyped("2012-12-31", "2013-01-01T00:00:00Z", "2013-06-30 00:00", ""))
    np.testing.assert_array_equal(text, block)


def test_times_of_the_day():
    moments = [datetime(2013, 3, 4, 6), datetime(2013, 3, 4, 18)]
    encoding = Encoding.fit(typed({"a": moments}))
    assert (stored(encoding)["a"]["cyclic"], encoding.row_shape) == (["hour"], (3,))
    block = encoding.apply(untyped("2013-03-04 06:00:00.5", "2013-03-04T18:00+01:00"))
    np.testing.assert_allclose(block[:, 1:], [[1, 0], [-1, 0]], atol=1e-4)
    clock = Encoding.fit(typed({"a": [time(0), time(12)]}))
    assert stored(clock)["a"]["linear"] == []
    lasting = Encoding.fit(typed({"a": [timedelta(days=1), timedelta(days=3)]}))
    assert lasting.apply(typed({"a": [timedelta(days=1), None]})).tolist() == [[-1], [0]]


def test_a_reference_date_and_a_format_can_be_given():
    values = untyped("20130101", "20131231", columns=asked(type="datetime", format="%Y%m%d"))
    encoding = Encoding.fit(values)
    assert encoding.row_shape == (3,), "both are a Tuesday of 2013"
    with_date = asked(type="datetime", format="%Y%m%d", reference="2014-01-01")
    later = Encoding.fit(replace(values, spec=replace(SPEC, columns=with_date)))
    assert stored(later)["a"]["reference"] == 16071
    with pytest.raises(DataError, match="cannot be read as dates or times"):
        Encoding.fit(untyped("2013-01-01", "soon", columns=asked(type="datetime")))


def test_quantile_scaling_is_not_moved_by_outliers():
    rng = np.random.default_rng(0)
    values = np.append(rng.lognormal(size=2000), 1e12)
    encoding = Encoding.fit(typed({"a": values}, scaling="quantile"))
    block = encoding.apply(typed({"a": [*values[:2000].tolist(), 1e15, None]}))[:, 0]
    np.testing.assert_allclose([block[:2000].mean(), block[:2000].std()], [0, 1], atol=0.05)
    assert 2 < block[2000] < 4
    assert block[2001] == 0
    flags = Encoding.fit(typed({"a": [0, 0, 0, 1]}, scaling="quantile"))
    low, high = flags.apply(typed({"a": [0, 1]}))[:, 0]
    assert low < 0 < high
    constant = Encoding.fit(typed({"a": [7, 7]}, scaling="quantile"))
    assert constant.apply(typed({"a": [7, 8]}))[:, 0].tolist() == [0, 0]


def test_the_form_has_quantiles_of_scaled_numbers():
    encoding = Encoding.fit(
        typed({"a": np.arange(1000) % 500, "b": ["x", "y"] * 500, "c": [1] * 1000})
    )
    assert encoding.form.order == (0, 4, 0)
    edges = encoding.form.edges
    assert [len(part) for part in edges] == [33, 0]
    block = encoding.apply(typed({"a": [0, 499], "b": ["x", "x"], "c": [1, 1]}))
    assert (edges[0][0], edges[0][-1]) == (block[0, 0], block[1, 0])
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again.form == encoding.form
    array = Table(Path("t"), SPEC, ["1", "2"], ("x",), np.array([[1.0, 5], [3, 5]]), None, False)
    fitted = Encoding.fit(array)
    assert fitted.form.edges == ((-1.0, 1.0), ())
    assert Encoding.from_json(fitted.to_json()).form == fitted.form


WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]


def test_ids_free_text_and_empty_columns_are_left_out_and_named():
    texts = [f"{row} is what {WORDS[row % 10]} said on that day" for row in range(100)]
    frame = {
        "tail": [f"N{row}" for row in range(100)],
        "note": texts,
        "row": list(range(100, 200)),
        "none": [None] * 100,
        "x": [row % 3 for row in range(100)],
    }
    encoding = Encoding.fit(typed(frame))
    reasons = {p["name"]: p.get("reason") for p in encoding.to_json()["columns"]}
    assert reasons == {
        "tail": "ids",
        "note": "free_text",
        "row": "row_numbers",
        "none": "empty",
        "x": None,
    }
    assert encoding.column_names == ("x",)
    assert encoding.unused_columns == ("tail", "note", "row", "none")
    assert encoding.apply(typed({"x": [1]})).shape == (1, 1), "nobody needs the others"
    columns = {"tail": ColumnSpec("category"), "row": ColumnSpec()}
    wanted = Encoding.fit(typed(frame, columns=columns))
    assert wanted.column_names == ("tail", "row", "x")
    assert Encoding.fit(typed({"row": frame["row"]})).column_names == ("row",), "all there is"


def test_a_category_of_whole_numbers_is_found_however_they_are_written():
    encoding = Encoding.fit(typed({"a": [1, 2, 2]}, columns=asked(type="category")))
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], ["1.0", "2"]):
        assert encoding.apply(typed({"a": values}))[:, 0].tolist() == [3, 2]


@pytest.mark.parametrize(
    ("train", "test", "match"),
    [
        ([1, 2], ["3", "x"], 'row 2 of column "a" is text'),
        ([1, 2], [date(2020, 1, 1)], "held numbers in training"),
        ([date(2020, 1, 1), date(2020, 1, 2)], [3], "held times in training"),
        ([date(2020, 1, 1)], ["2020-01-01", "2020-02-31"], 'row 2 of column "a" cannot be read'),
        ([1, 2], [0.0, 1.0, np.inf], 'column "a" is infinite in row 3'),
        ([1, 2], ["0", "inf"], 'column "a" is infinite in row 2'),
        (["x", "y"], [[1]], "has the type List"),
    ],
)
def test_refused_at_test_time_in_one_line(train, test, match):
    encoding = Encoding.fit(typed({"a": train}))
    with pytest.raises(DataError, match=match) as caught:
        encoding.apply(typed({"a": test}))
    assert caught.value.where == "t.parquet"
    assert "\n" not in str(caught.value)


def test_infinite_values_in_training():
    with pytest.raises(DataError, match='"a" is infinite in row 2'):
        Encoding.fit(untyped("1", "inf"))
    with pytest.raises(DataError, match="infinite"):
        Encoding.fit(typed({"a": [1.0, -np.inf]}))


def test_a_year_that_no_calendar_has():
    far = pl.Series("a", [5 * 10**17, 0]).cast(pl.Datetime("us"))
    encoding = Encoding.fit(typed({"a": [datetime(2020, 1, 1), datetime(2020, 1, 2)]}))
    with pytest.raises(DataError, match="a year before 2 or after 9998 in row 1"):
        encoding.apply(typed({"a": far}))


ODD_DTYPES = [
    pl.Series("a", [5 * 10**17, 0]).cast(pl.Datetime("us", "Europe/Berlin")),
    pl.Series("a", [2**31 - 1, -(2**31)], dtype=pl.Int32).cast(pl.Date),
    pl.Series("a", [2**62, None]).cast(pl.Duration("us")),
    pl.Series("a", [86_399_999_999_999, None]).cast(pl.Time),
    pl.Series("a", [2**63 - 1, -(2**63)]),
    pl.Series("a", [1.7e308, -1.7e308]),
    pl.Series("a", [[1], None]),
]


@pytest.mark.parametrize("odd", ODD_DTYPES, ids=lambda odd: str(odd.dtype))
@pytest.mark.parametrize("known", [["x", "y"], [1, 2], [date(2020, 1, 1), date(2020, 1, 2)]])
def test_odd_types_are_predicted_from_or_refused(odd, known):
    """polars raises, or even aborts, on some of these if it is asked to convert them."""
    encoding = Encoding.fit(typed({"a": known}))
    with suppress(DataError):
        assert np.isfinite(encoding.apply(typed({"a": odd}))).all()
    with suppress(DataError):
        assert np.isfinite(Encoding.fit(typed({"a": odd})).apply(typed({"a": odd}))).all()


def test_one_constant_value():
    encoding = Encoding.fit(typed({"a": [5, 5, 5], "b": ["x"] * 3, "c": [date(2020, 1, 1)] * 3}))
    assert np.isfinite(encoding.apply(typed({"a": [9], "b": ["y"], "c": [date(1999, 1, 1)]}))).all()
    assert encoding.apply(typed({"a": [5], "b": ["x"], "c": [None]})).tolist() == [[0, 0, 2]]


def test_only_numbers_or_only_categories():
    assert Encoding.fit(typed({"a": [1, 2]})).form.cardinalities == ()
    only = Encoding.fit(typed({"a": ["x", "y"]}))
    assert (only.form.num_numbers, only.form.edges) == (0, ())
    assert only.apply(typed({"a": ["x"]})).tolist() == [[2]]


def test_all_values_missing():
    empty = typed({"a": pl.Series([None, None], dtype=pl.String)})
    with pytest.raises(DataError, match=r'no column is left to learn from: "a" \(empty\)'):
        Encoding.fit(empty)
    for none in ([np.nan, None], pl.Series([None, None], dtype=pl.Duration("us"))):
        with pytest.raises(DataError, match="no column is left"):
            Encoding.fit(typed({"a": none}))
    with pytest.raises(DataError, match="has no value in any row"):
        Encoding.fit(replace(empty, spec=replace(SPEC, columns=asked(type="number"))))
    for values in ([1, 2, None], ["x", "y"], [date(2020, 1, 1), date(2020, 1, 2), None]):
        encoding = Encoding.fit(typed({"a": values}))
        for dtype in (pl.Null, pl.String, pl.Int64):
            row = encoding.apply(typed({"a": pl.Series([None], dtype=dtype)}))[0]
            assert row[-1] == 1, "it is said to be missing"


@pytest.mark.parametrize("values", [[[1]], [{"x": 1}], [b"x"]])
def test_types_that_cannot_be_encoded(values):
    with pytest.raises(DataError, match='column "odd" has the type') as caught:
        Encoding.fit(typed({"odd": values}))
    assert "exclude" in caught.value.hint


def test_names_that_the_table_does_not_have(tmp_path):
    typo = csv(tmp_path, "id,a,secret\n1,2,3\n", spec=TableSpec(id="id", exclude=("secrt",)))
    with pytest.raises(DataError, match="secrt") as caught:
        Encoding.fit(typo)
    assert '"secret"' in caught.value.hint
    with pytest.raises(DataError, match=r'no feature column for `data\.columns`: "b"'):
        Encoding.fit(typed({"a": [1, 2]}, columns={"b": ColumnSpec("number")}))


def test_what_is_for_columns_is_refused_for_arrays():
    array = Table(Path("t"), SPEC, ["1", "2"], ("x",), np.eye(2), None, untyped=False)
    for spec in (replace(SPEC, scaling="quantile"), replace(SPEC, columns=asked(type="number"))):
        with pytest.raises(DataError, match="is for tables with columns"):
            Encoding.fit(replace(array, spec=spec))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"edges": []},
        {"edges": [[1.0, 0.0]]},
        {"columns": [{"name": "a", "kind": "odd"}]},
        {"columns": [{"name": "a", "kind": "number", "decimal": ";"}]},
    ],
)
def test_stored_encoding_that_is_broken(change):
    good = Encoding.fit(typed({"a": [1, 2]})).to_json()
    with pytest.raises(DataError, match="stored encoding cannot be read"):
        Encoding.from_json({**good, **change})


cells = st.one_of(st.none(), st.floats(allow_infinity=False, width=64))
words = st.one_of(st.none(), st.text(max_size=3))
moments = st.one_of(st.none(), st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(cells, words, st.booleans(), moments), min_size=1, max_size=40),
    st.randoms(),
    st.sampled_from(["standard", "quantile", "none"]),
)
def test_json_round_trip_gives_identical_blocks(rows, random, scaling):
    schema = {"a": pl.Float64, "b": pl.String, "c": pl.Boolean, "d": pl.Datetime("us")}
    train = typed(pl.DataFrame(rows, schema=schema, orient="row").to_dict(), scaling=scaling)
    random.shuffle(rows)
    test = typed(pl.DataFrame(rows, schema=schema, orient="row").to_dict())
    encoding = Encoding.fit(train)
    copy = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    block = encoding.apply(test)
    assert np.isfinite(block).all()
    codes = block[:, encoding.form.num_numbers :]
    assert (codes >= 0).all()
    assert (codes < np.array(encoding.form.cardinalities)).all()
    assert copy.form == encoding.form
    assert copy.apply(test).tobytes() == block.tobytes()


PIECES = ["", "1", "-1", "1e400", "inf", "nan", "NA", "1,5", "1.234,5", "1,234.5", "2013-01-01"]
PIECES += ["2013-02-30", "0000-00-00", "9999-12-31", "31.12.2013", "12/31/2013", "2013-01-01T25:00"]
PIECES += [
    "2013-01-01 23:59:60",
    "2013-01-01T10:00:00.123+02:00",
    "yes",
    "NO",
    "t",
    "007",
    "+",
    "-",
]
PIECES += ["e", "\u2028", "a" * 300, "\0", "9" * 30, "1_000", "0x10", "1.", ".", ",", "12:30"]
columns_of_text = st.lists(st.one_of(st.none(), st.sampled_from(PIECES)), min_size=1, max_size=8)
types = st.sampled_from([None, "number", "boolean", "category", "datetime"])
formats = st.sampled_from([None, "%Y%m%d", "%d.%m.%y", "%H:%M", "%Q%", "%", "%s"])


@settings(max_examples=150, deadline=None)
@given(columns_of_text, columns_of_text, types, formats, st.booleans())
def test_odd_text_is_predicted_from_or_refused(train, test, kind, form, is_untyped):
    spec = {} if kind is None else asked(type=kind, format=form)
    with suppress(DataError):
        encoding = Encoding.fit(replace(untyped(*train, columns=spec), untyped=is_untyped))
        for values in (train, test):
            block = encoding.apply(untyped(*values))
            assert np.isfinite(block).all()
            codes = block[:, encoding.form.num_numbers :]
            assert (codes < np.array(encoding.form.cardinalities)).all()
