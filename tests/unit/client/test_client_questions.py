"""From ids to rows: what is found belongs together, also while the serving table is replaced."""

from types import SimpleNamespace

import numpy as np
import torch

from laser_vfl.client.holdings import Holdings, Rowset
from laser_vfl.client.questions import resolve
from laser_vfl.data import blind_ids
from laser_vfl.v1 import prediction_pb2 as pb

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


SERVING = SimpleNamespace(blind=blind, config=SimpleNamespace(name="bank"))


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
