"""From ids to rows: what is found belongs together, also while the serving table is replaced."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laser_vfl.client.holdings import Holdings, Rowset
from laser_vfl.client.questions import check_request, resolve
from laser_vfl.core.errors import DataError
from laser_vfl.data import blind_ids
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.wire.requests import encode_request

SECRET = b"a secret of the clients alone"


def blind(ids):
    return blind_ids(ids, SECRET, "trial")


def held(*ids):
    """Rows whose only feature is the number in the id."""
    numbers = [[float(text.rpartition("-")[2])] for text in ids]
    return Holdings([Rowset(blind(ids), torch.tensor(numbers), ids)])


class Changing:
    """An edition whose rows another thread replaces between any two looks at them."""

    def __init__(self, *versions):
        self._versions = iter(versions)

    @property
    def holdings(self):
        return next(self._versions)


FORGOTTEN = SimpleNamespace(are=lambda ids: np.array([id == "person-7" for id in ids], dtype=bool))
SERVING = SimpleNamespace(
    blind=blind, config=SimpleNamespace(name="bank"), forgotten=FORGOTTEN, visit=lambda *_: None
)


def test_an_id_may_not_be_of_any_length():
    edition = SimpleNamespace(max_rows=3)
    check_request(edition, pb.PredictRequest(ids=["a" * 1024, "é" * 1024]))
    with pytest.raises(DataError, match="the id of sample 2 has 1025 characters, at most 1024 are"):
        check_request(edition, pb.PredictRequest(ids=["a", "b" * 1025, "c"]))


def test_rows_are_those_of_the_ids():
    edition = SimpleNamespace(holdings=held("person-1", "person-2", "person-3"))
    request = pb.PredictRequest(ids=["person-3", "nobody", "", "person-1"])
    rows = resolve(SERVING, edition, request)
    assert rows.places.tolist() == [0, 3]
    assert rows.inputs.tolist() == [[3.0], [1.0]]
    assert sorted(rows.errors) == [1, 2]
    assert rows.errors[1] == "bank does not hold this sample"
    assert np.array_equal(rows.digests, blind(["person-3", "person-1"]))


def test_nobody_gets_the_features_of_another_while_rows_are_replaced():
    edition = Changing(held("person-1", "person-2"), held("person-2", "person-1"))
    rows = resolve(SERVING, edition, pb.PredictRequest(ids=["person-1"]))
    assert rows.inputs.tolist() == [[1.0]]


def test_features_of_somebody_forgotten_are_refused_and_the_others_answered():
    encoding = SimpleNamespace(
        column_names=("age",), text_columns=(), apply=lambda table: table.features.to_numpy().copy()
    )
    visited = []
    serving = SimpleNamespace(
        blind=blind,
        config=SERVING.config,
        forgotten=FORGOTTEN,
        visit=lambda edition, ids, digests: visited.extend(ids),
    )
    edition = SimpleNamespace(model=SimpleNamespace(encoding=encoding))
    array = np.array([[6.0], [7.0], [8.0]], dtype=np.float32)
    request = encode_request(["person-6", "person-7", "person-8"], None, array)
    rows = resolve(serving, edition, request)
    assert rows.places.tolist() == [0, 2]
    assert rows.inputs.tolist() == [[6.0], [8.0]]
    assert rows.errors == {1: "bank has forgotten this sample"}
    assert visited == ["person-6", "person-8"]
    assert np.array_equal(rows.digests, blind(["person-6", "person-8"]))
