"""Answers of a daemon become arrays, features become text; what does not fit is refused."""

import math

import numpy as np
import polars as pl
import pytest

from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.transport.prediction_replies import decode_predictions
from laser_vfl.transport.prediction_requests import encode_features
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2
from tests.support.fakes.remote_fake import regression_to, response_to


def decoded(ids, **options):
    return decode_predictions(ids, response_to(ids, **options))


def test_an_answer_without_errors():
    predictions = decoded(["x", "y"])
    assert predictions.ids == ("x", "y")
    assert predictions.labels.tolist() == ["b", "b"]
    assert predictions.labels.dtype.kind == "U"
    assert predictions.probabilities.dtype == np.float32
    np.testing.assert_allclose(predictions.probabilities, [[0.1, 0.9]] * 2)
    assert predictions.blocks.tolist() == [[True, True, False]] * 2
    assert predictions.block_names == ["bank,shop"] * 2
    assert predictions.expected_scores.tolist() == [0.75, 0.75]
    assert predictions.errors == (None, None)
    assert predictions.peers == {"shop": "", "telco": "too slow"}


def test_a_sample_without_a_prediction_is_blank():
    predictions = decoded(["x", "?"])
    assert predictions.labels.tolist() == ["b", None]
    assert predictions.labels.dtype == object
    assert np.isnan(predictions.probabilities).tolist() == [[False, False], [True, True]]
    assert predictions.block_names == ["bank,shop", ""]
    assert math.isnan(predictions.expected_scores[1])
    assert predictions.errors == (None, "=not held here")


@pytest.mark.parametrize(
    ("classes", "kind", "dtype", "values"),
    [
        (("1", "2"), "number", np.int64, [1, 2]),
        (("1", "2.5"), "number", np.float64, [1.0, 2.5]),
        (("false", "true"), "boolean", np.bool_, [False, True]),
        (("1", "2"), "text", np.dtype("<U1"), ["1", "2"]),
        (("1", str(2**70)), "number", np.dtype("<U22"), ["1", str(2**70)]),
    ],
)
def test_classes_have_their_own_type(classes, kind, dtype, values):
    predictions = decoded(["x"], classes=classes, kind=kind)
    assert predictions.classes.dtype == dtype
    assert predictions.classes.tolist() == values
    assert predictions.labels.dtype == dtype
    assert predictions.labels.tolist() == values[-1:]
    assert decoded(["?"], classes=classes, kind=kind).labels.tolist() == [None]


def test_a_regression_has_values():
    predictions = decode_predictions(["x", "?", "z"], regression_to(["x", "?", "z"]))
    assert predictions.probabilities is None
    assert predictions.classes.shape == (0,)
    np.testing.assert_equal(predictions.labels, [0.5, math.nan, 2.5])
    assert predictions.errors[1] == "the daemon gave no reason"
    assert np.isnan(predictions.expected_scores).all()


@pytest.mark.parametrize("answer", [response_to, regression_to])
def test_all_samples_may_be_without_a_prediction(answer):
    predictions = decode_predictions(["?1", "?2"], answer(["?1", "?2"]))
    assert all(predictions.errors)
    assert not predictions.blocks.any()
    assert predictions.block_names == ["", ""]


def test_a_guess_uses_no_block():
    response = response_to(["x", "y"])
    response.blocks[1] = 0
    predictions = decode_predictions(["x", "y"], response)
    assert predictions.errors == (None, None)
    assert predictions.block_names[1] == ""
    assert math.isnan(predictions.expected_scores[1])


def test_no_ids_are_no_predictions():
    predictions = decoded([])
    assert predictions.blocks.shape == (0, 3)
    assert predictions.probabilities.shape == (0, 2)
    assert predictions.block_names == []


@pytest.mark.parametrize(
    "change",
    [
        {"task": "ranking"},
        {"task": "regression"},
        {"classes": []},
        {"classes": ["x", "y"], "class_kind": "number"},
        {"classes": ["x", "y"], "class_kind": "boolean"},
        {"blocks": [1]},
        {"blocks": [1, 8]},
        {"class_places": [0]},
        {"class_places": [0, 2]},
        {"values": [1.0]},
        {"probabilities": b"\0" * 12},
        {"errors": [pb.SampleError(place=2)]},
        {"roster": ["x"] * 65},
    ],
)
def test_an_answer_that_does_not_fit_is_refused(change):
    response = response_to(["x", "y"])
    for name, value in change.items():
        response.ClearField(name)
        if isinstance(value, list):
            getattr(response, name).extend(value)
        else:
            setattr(response, name, value)
    with pytest.raises(ContractError):
        decode_predictions(["x", "y"], response)


def columns_in(features, num_ids=2):
    message = pb.PredictRequest(**encode_features(features, num_ids)).columns
    return {column.name: list(column.values) for column in message.columns}


def test_features_as_columns():
    assert encode_features(None, 2) == {}
    assert columns_in(
        {
            "f": [0.1, None],
            "i": [1, -2],
            "b": [True, np.False_],
            "t": ["", " x"],
            "n": np.array([0.1, np.nan], dtype=np.float32),
            "k": np.array([3, 4]),
        }
    ) == {
        "f": ["0.1", ""],
        "i": ["1", "-2"],
        "b": ["true", "false"],
        "t": ["", " x"],
        "n": ["0.10000000149011612", "nan"],
        "k": ["3", "4"],
    }


def test_features_as_rows_and_frames():
    expected = {"age": ["31", ""], "city": ["", "Bonn"]}
    assert columns_in([{"age": 31}, {"city": "Bonn"}]) == expected
    assert columns_in(pl.DataFrame({"age": [31, None], "city": [None, "Bonn"]})) == expected


class PandasLike:
    """A frame whose to_dict is that of pandas."""

    columns = ("age",)

    def to_dict(self, orient="dict"):
        assert orient == "list"
        return {"age": [1, 2]}


def test_features_as_a_frame_of_others():
    assert columns_in(PandasLike()) == {"age": ["1", "2"]}


def test_features_as_an_array():
    array = np.arange(12, dtype=np.int64).reshape(2, 3, 2)
    tensor = pb.PredictRequest(**encode_features(array, 2)).array
    assert tensor.dtype == tensor_pb2.DTYPE_FLOAT32
    assert list(tensor.shape) == [2, 3, 2]
    assert np.frombuffer(tensor.data, "<f4").tolist() == list(range(12))
    assert list(encode_features(np.array([1e300, 2]), 2)["array"].shape) == [2, 1]
    swapped = encode_features(np.array([[1, 2]], dtype=">f4").T[::-1], 2)["array"]
    assert np.frombuffer(swapped.data, "<f4").tolist() == [2, 1]


@pytest.mark.parametrize(
    "features",
    [
        {"a": [1, 2, 3]},
        {"a": [1]},
        {"a": "xy"},
        {"a": 1},
        {"a": [object(), 1]},
        {1: [1, 2]},
        {},
        [{"a": 1}],
        [[1], [2]],
        "ab",
        5,
        np.zeros((3, 1)),
        np.zeros((2, 0)),
        np.array(["a", "b"]),
        np.array(1.0),
        pl.DataFrame({"a": [1]}),
    ],
)
def test_features_that_do_not_fit_are_refused_here(features):
    with pytest.raises(DataError):
        encode_features(features, 2)
