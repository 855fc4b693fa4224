"""Encodings as release 0.1.0 fitted them: its models and its unfinished runs need them."""

import json
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.errors import DataError
from laser_vfl.core.table_rows import flat_rows
from laser_vfl.data import Encoding, Table, TableSpec, read_table

fit = partial(Encoding.fit, version=1)

SPEC = TableSpec(id="id")


def csv(folder: Path, text: str, name: str = "t.csv", spec: TableSpec = SPEC) -> Table:
    path = folder / name
    path.write_text(text)
    return read_table(path, spec)


def column(*values: str) -> str:
    return "id,a\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values))


def typed(**columns: pl.Series | list[object]) -> Table:
    frame = pl.DataFrame(columns)
    ids = list(map(str, range(len(frame))))
    return Table(Path("t.parquet"), SPEC, ids, tuple(columns), frame, None, untyped=False)


def block(array: np.ndarray) -> Table:
    ids = list(map(str, range(len(array))))
    return Table(Path("t.npz"), SPEC, ids, ("id", "x"), array, None, untyped=False)


def flat(encoding: Encoding, table: Table) -> np.ndarray:
    """Return a block as a model sees it that takes categories one-hot."""
    return flat_rows(torch.from_numpy(encoding.apply(table)), encoding.form).numpy()


def test_numbers_are_imputed_and_standardised(tmp_path):
    train = csv(tmp_path, "id,a,b\n1,1,5\n2,3,5\n3,,5\n4,NA,5\n")
    encoding = fit(train)
    assert encoding.input_shape == (2,)
    block = encoding.apply(train)
    assert (block.dtype, block.flags["C_CONTIGUOUS"]) == (np.float32, True)
    assert block.tolist() == [[-1, 0], [1, 0], [0, 0], [0, 0]]
    test = csv(tmp_path, "id,extra,b,a\n9,q,7,5\n8,q,?,\n", "test.csv")
    assert encoding.apply(test).tolist() == [[3, 0], [0, 0]]


def test_text_becomes_one_column_per_value_and_other(tmp_path):
    train = csv(tmp_path, column("b", "b", "a", "c", ""))
    encoding = fit(train)
    assert encoding.to_json()["columns"][0]["values"] == ["b", "a", "c"]
    assert flat(encoding, train).tolist() == [
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    test = csv(tmp_path, column("new", "", "c"), "test.csv")
    assert flat(encoding, test).argmax(axis=1).tolist() == [3, 3, 2]


def test_rare_values_share_a_column_where_there_are_many(tmp_path):
    few = csv(tmp_path, column("x", "x", *"abcdefghi"))
    assert fit(few).input_shape == (11,)
    many = csv(tmp_path, column("x", "x", *"abcdefghij"))
    assert fit(many).to_json()["columns"][0]["values"] == ["x"]
    capped = csv(tmp_path, column(*[f"v{value:02}" for value in range(40)] * 2))
    values = fit(capped).to_json()["columns"][0]["values"]
    assert values == [f"v{value:02}" for value in range(32)]


def test_rare_is_half_a_percent_of_the_rows():
    names = [f"v{value}" for value in range(11)]
    values = names[:1] * 1963 + [name for name in names[1:10] for _ in range(3)] + ["v10"] * 10
    assert len(values) == 2000
    encoding = fit(typed(a=values))
    assert encoding.to_json()["columns"][0]["values"] == ["v0", "v10"]


def test_codes_stay_text_whatever_the_test_file_looks_like(tmp_path):
    encoding = fit(csv(tmp_path, column("007", "x", "007", "true")))
    test = csv(tmp_path, column("007", "true"), "test.csv")
    assert flat(encoding, test).argmax(axis=1).tolist() == [0, 1]


def test_booleans_are_numbers(tmp_path):
    encoding = fit(csv(tmp_path, column("true", "False", "TRUE", "false", "")))
    test = csv(tmp_path, column("true", "0", "1", "na"), "test.csv")
    assert encoding.apply(test).tolist() == [[1], [-1], [1], [0]]
    assert encoding.apply(typed(a=[True, False])).tolist() == [[1], [-1]]
    assert fit(typed(a=[True, False])).apply(typed(a=[True, None])).tolist() == [[1], [0]]


def test_parquet_types():
    train = typed(
        day=[date(1970, 1, 1), date(1970, 1, 3)],
        moment=[datetime(1970, 1, 1), datetime(1970, 1, 1, 12)],
        code=["1", "2"],
        group=pl.Series(["x", "y"], dtype=pl.Categorical),
        small=pl.Series([1, 3], dtype=pl.UInt8),
        money=pl.Series(["1.5", "2.5"]).cast(pl.Decimal(10, 2)),
        nothing=pl.Series([None, None], dtype=pl.Null),
    )
    encoding = fit(train)
    stored = {part["name"]: part for part in encoding.to_json()["columns"]}
    assert (stored["day"]["mean"], stored["day"]["deviation"]) == (1, 1)
    assert (stored["moment"]["mean"], stored["moment"]["deviation"]) == (0.25, 0.25)
    assert stored["code"]["values"] == ["1", "2"]
    assert flat(encoding, train).tolist() == [
        [-1, -1, 1, 0, 0, 1, 0, 0, -1, -1, 0],
        [1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0],
    ]


def test_a_column_without_values():
    never = fit(typed(a=pl.Series([None, None], dtype=pl.String)))
    assert never.apply(typed(a=["x", "y"])).tolist() == [[0], [0]]
    for values in ([1, 2], ["x", "y"], [date(2020, 1, 1), date(2020, 1, 2)]):
        encoding = fit(typed(a=values))
        for dtype in (pl.Null, pl.String, pl.Int64):
            block = flat(encoding, typed(a=pl.Series([None], dtype=dtype)))
            assert block.tolist() == ([[0]] if block.shape[1] == 1 else [[0, 0, 1]])


@pytest.mark.parametrize(
    ("train", "test", "match"),
    [
        ({"a": [1, 2]}, {"b": [1]}, 'no feature column "a"'),
        ({"a": [1, 2]}, {"a": ["3", "x"]}, 'row 2 of column "a" is text'),
        ({"a": [1, 2]}, {"a": [date(2020, 1, 1)]}, "held numbers in training"),
        ({"a": [date(2020, 1, 1)]}, {"a": [3]}, "held times in training"),
        ({"a": [1, 2]}, {"a": [0.0, 1.0, np.inf]}, 'column "a" is infinite in row 3'),
        ({"a": ["x", "y"]}, {"a": [[1]]}, "has the type List"),
    ],
)
def test_refused_at_test_time(train, test, match):
    encoding = fit(typed(**train))
    with pytest.raises(DataError, match=match) as caught:
        encoding.apply(typed(**test))
    assert caught.value.where == "t.parquet"


@pytest.mark.parametrize("values", [[[1]], [{"x": 1}], [b"x"]])
def test_types_that_cannot_be_encoded(values):
    with pytest.raises(DataError, match='column "odd" has the type') as caught:
        fit(typed(odd=values))
    assert "exclude" in caught.value.hint


def test_infinite_and_unknown_exclude_in_training(tmp_path):
    with pytest.raises(DataError, match='"a" is infinite in row 2'):
        fit(csv(tmp_path, column("1", "inf")))
    typo = csv(tmp_path, "id,a,secret\n1,2,3\n", spec=TableSpec(id="id", exclude=("secrt",)))
    with pytest.raises(DataError, match="secrt") as caught:
        fit(typo)
    assert '"secret"' in caught.value.hint


def test_extreme_numbers_stay_finite():
    encoding = fit(typed(a=[-1.7e308, 1.7e308], b=[1e-200, 3e-200], c=[0.1, 0.1]))
    block = encoding.apply(typed(a=[1.7e308], b=[2e-200], c=[9.0]))
    np.testing.assert_allclose(block, [[1, 0, 0]], atol=1e-6)
    assert encoding.apply(typed(a=[0.0], b=[-1e300], c=[1.7e308])).tolist() == [[0, -1e6, 0]]


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 3), 1), ((5, 4, 3), 2), ((5, 3, 4, 2), 1), ((5, 2, 3, 2, 2), 1)]
)
def test_arrays_are_standardised_per_channel(shape, axis, monkeypatch):
    monkeypatch.setattr("laser_vfl.data.standardisation._PIECE_VALUES", 2 * int(np.prod(shape[1:])))
    rng = np.random.default_rng(0)
    array = rng.normal(3, 2, shape).astype(np.float32)
    array.flat[1] = np.nan
    axes = tuple(place for place in range(array.ndim) if place != axis)
    wide = array.astype(np.float64)
    expected = (wide - np.nanmean(wide, axes, keepdims=True)) / np.nanstd(wide, axes, keepdims=True)
    encoding = fit(block(array))
    assert encoding.input_shape == shape[1:]
    encoded = encoding.apply(block(array))
    assert (encoded.dtype, encoded.flags["C_CONTIGUOUS"]) == (np.float32, True)
    np.testing.assert_allclose(encoded, np.nan_to_num(expected), rtol=1e-5, atol=1e-6)


def test_byte_images_and_constant_channels():
    images = np.zeros((4, 2, 3, 3), np.uint8)
    images[2:, 0] = 255
    encoded = fit(block(images)).apply(block(images))
    assert encoded[:, 0].min() == -1
    assert encoded[:, 0].max() == 1
    assert not encoded[:, 1].any()


def test_array_errors():
    encoding = fit(block(np.zeros((2, 3))))
    with pytest.raises(DataError, match=r"shape \(4,\), in training it was \(3,\)"):
        encoding.apply(block(np.zeros((2, 4))))
    with pytest.raises(DataError, match="infinite in row 2"):
        encoding.apply(block(np.array([[0, 0, 0], [0, np.inf, 0]])))
    with pytest.raises(DataError, match="features are columns"):
        encoding.apply(typed(a=[1]))
    with pytest.raises(DataError, match="features are an array"):
        fit(typed(a=[1])).apply(block(np.zeros((2, 3))))


def test_stored_encoding_that_is_broken():
    good = fit(block(np.zeros((2, 3)))).to_json()
    columns = {"block": "columns", "columns": [{"name": "a", "kind": "odd"}]}
    for stored in ({}, {**good, "mean": [0.0]}, {**good, "axis": 0}, columns):
        with pytest.raises(DataError, match="stored encoding cannot be read"):
            Encoding.from_json(stored)


cells = st.one_of(st.none(), st.floats(allow_infinity=False, width=64))
words = st.one_of(st.none(), st.text(max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, words, st.booleans()), min_size=1, max_size=40), st.randoms())
def test_json_round_trip_gives_identical_blocks(rows, random):
    schema = {"a": pl.Float64, "b": pl.String, "c": pl.Boolean}
    train = typed(**pl.DataFrame(rows, schema=schema, orient="row").to_dict())
    random.shuffle(rows)
    test = typed(**pl.DataFrame(rows, schema=schema, orient="row").to_dict())
    encoding = fit(train)
    copy = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    block = encoding.apply(test)
    assert np.isfinite(block).all()
    assert copy.input_shape == encoding.input_shape
    assert copy.apply(test).tobytes() == block.tobytes()


def test_array_json_round_trip():
    array = np.random.default_rng(1).normal(size=(6, 3, 2, 2))
    encoding = fit(block(array))
    copy = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert copy.apply(block(array)).tobytes() == encoding.apply(block(array)).tobytes()


def test_without_scaling_numbers_stay_as_they_are():
    days = [date(2024, 1, 1), date(2024, 1, 3)]
    columns = typed(a=[100, None], b=[True, False], when=days, text=["x", "y"])
    train = replace(columns, spec=replace(SPEC, scaling="none"))
    encoding = fit(train)
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    for each in (encoding, again):
        encoded = each.apply(train)
        assert encoded[:, :2].tolist() == [[100, 1], [0, 0]]
        assert encoded[:, 2].tolist() == [-1, 1]  # times have no unit that means anything


def test_without_scaling_an_array_stays_as_it_is():
    sequences = np.array([[[3.0, np.nan], [5.0, 7.0]]], dtype=np.float32)
    table = replace(block(sequences), spec=replace(SPEC, scaling="none"))
    assert fit(table).apply(table).tolist() == [[[3, 0], [5, 7]]]
