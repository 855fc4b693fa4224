"""From ids to rows: what is found belongs together, also while the serving table is replaced."""

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from laser_vfl.client.serving.request_rows import RowResolver, check_request
from laser_vfl.client.serving.row_index import RowIndex, Rowset
from laser_vfl.core.errors import DataError
from laser_vfl.data import Encoding, Table, TableSpec, blind_ids
from laser_vfl.data.columns.column_spec import ColumnSpec
from laser_vfl.transport.prediction_requests import encode_request
from laser_vfl.v1 import prediction_pb2 as pb

SECRET = b"a secret of the clients alone"


def blind(ids):
    return blind_ids(ids, SECRET, "trial")


def held(*ids):
    """Rows whose only feature is the number in the id."""
    numbers = [[float(text.rpartition("-")[2])] for text in ids]
    return RowIndex([Rowset(blind(ids), torch.tensor(numbers), ids)])


class Changing:
    """A model whose rows another thread replaces between any two looks at them."""

    def __init__(self, *versions):
        self._versions = iter(versions)

    @property
    def row_index(self):
        return next(self._versions)


def resolve(model, request, remember=lambda *_: None):
    unaligned = SimpleNamespace(remember=remember)
    return RowResolver("bank", blind, unaligned).resolve(model, request, "crm")


def test_an_id_may_not_be_of_any_length():
    model = SimpleNamespace(max_rows=3)
    check_request(model, pb.PredictRequest(ids=["a" * 1024, "é" * 1024]))
    with pytest.raises(DataError, match="the id of sample 2 has 1025 characters, at most 1024 are"):
        check_request(model, pb.PredictRequest(ids=["a", "b" * 1025, "c"]))


def test_rows_are_those_of_the_ids():
    model = SimpleNamespace(row_index=held("person-1", "person-2", "person-3"))
    request = pb.PredictRequest(ids=["person-3", "nobody", "", "person-1"])
    rows = resolve(model, request)
    assert rows.places.tolist() == [0, 3]
    assert rows.inputs.tolist() == [[3.0], [1.0]]
    assert sorted(rows.errors) == [1, 2]
    assert rows.errors[1] == "bank does not hold this sample"
    assert np.array_equal(rows.digests, blind(["person-3", "person-1"]))


def test_nobody_gets_the_features_of_another_while_rows_are_replaced():
    model = Changing(held("person-1", "person-2"), held("person-2", "person-1"))
    rows = resolve(model, pb.PredictRequest(ids=["person-1"]))
    assert rows.inputs.tolist() == [[1.0]]


def test_features_are_answered_whoever_they_are_of():
    encoding = SimpleNamespace(
        column_names=("age",),
        unused_columns=(),
        text_columns=(),
        apply=lambda table: table.features.to_numpy().copy(),
    )
    remembered = []
    model = SimpleNamespace(model=SimpleNamespace(encoding=encoding))
    array = np.array([[6.0], [7.0], [8.0]], dtype=np.float32)
    ids = ["person-6", "person-7", "person-8"]
    request = encode_request(ids, None, array)
    rows = resolve(model, request, lambda model, ids, digests, caller: remembered.extend(ids))
    assert rows.places.tolist() == [0, 1, 2]
    assert rows.inputs.tolist() == [[6.0], [7.0], [8.0]]
    assert rows.errors == {}
    assert remembered == ids, "what is said of new ids is the same for all"
    assert np.array_equal(rows.digests, blind(ids))


def test_numbers_mean_themselves_also_where_the_tables_have_decimal_commas():
    texts = pl.DataFrame({"rate": ["1,5", "-2,25", "1.234"], "code": ["1.125", "2", "2"]})
    spec = TableSpec("id", scaling="none", columns={"code": ColumnSpec("category")})
    table = Table(Path("t"), spec, ["1", "2", "3"], ("rate", "code"), texts, None, untyped=True)
    model = SimpleNamespace(model=SimpleNamespace(encoding=Encoding.fit(table)))

    def rates(*values):
        ids = [f"person-{place}" for place in range(len(values))]
        features = {"rate": values, "code": [1.125] * len(values)}
        return resolve(model, encode_request(ids, None, features)).inputs[:, 0].tolist()

    assert rates(1.234, 0.125, 51.125) == pytest.approx([1.234, 0.125, 51.125])
    assert rates(np.float64(1.234), Decimal("1234.567"), 7) == pytest.approx([1.234, 1234.567, 7])
    assert rates(1.234e-7, None, "NA") == pytest.approx([1.234e-7, 0, 0])
    assert rates("1.234", "0,125") == pytest.approx([1234, 0.125])
    for values in (["0.125"], [0.5, "1,5"]):
        with pytest.raises(DataError, match='column "rate" is text, not a number'):
            rates(*values)


def test_a_sample_of_which_nothing_is_known_has_an_error():
    table = Table(
        Path("t"),
        TableSpec("id"),
        ["1", "2", "3"],
        ("age", "tail"),
        pl.DataFrame({"age": [1, 2, 3], "tail": [None, None, None]}),
        None,
        untyped=False,
    )
    model = SimpleNamespace(model=SimpleNamespace(encoding=Encoding.fit(table)))
    features = {"age": [None, 2, None], "tail": ["N1", "N2", "N3"]}
    rows = resolve(model, encode_request(["person-1", "", "person-3"], None, features))
    assert rows.places.tolist() == []
    assert rows.errors.keys() == {0, 1, 2}
    assert rows.errors[0] == "no feature of this sample is known"
    rows = resolve(model, encode_request(["person-1", "person-2", "person-3"], None, features))
    assert (rows.places.tolist(), rows.inputs.tolist()) == ([1], [[0.0]])
    assert np.array_equal(rows.digests, blind(["person-2"]))


def test_features_that_are_not_sent_are_not_known():
    seen = []
    encoding = SimpleNamespace(
        column_names=("age", "income", "city"),
        unused_columns=(),
        text_columns=("city",),
        apply=lambda table: seen.append(table.features) or np.zeros((2, 1), np.float32),
    )
    model = SimpleNamespace(model=SimpleNamespace(encoding=encoding))
    features = {"age": [41, 30], "income": [52_000, None]}
    rows = resolve(model, encode_request(["person-1", "person-2"], None, features))
    assert rows.places.tolist() == [0, 1]
    (frame,) = seen
    assert frame.to_dict(as_series=False) == {
        "age": ["41", "30"],
        "income": ["52000", None],
        "city": [None, None],
    }
