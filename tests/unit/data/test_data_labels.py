"""Labels: the task they make, targets, weights and what is refused."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data import LabelEncoding, Table, TableSpec

SPEC = TableSpec(id="id", label="y")


def labels(*values: object, untyped: bool = False, dtype: object = None) -> Table:
    series = pl.Series("y", values, dtype=dtype, strict=False)  # type: ignore[arg-type]
    ids = list(map(str, range(len(values))))
    return Table(Path("t.csv"), SPEC, ids, ("y",), pl.DataFrame(), series, untyped=untyped)


def text(*values: str | None) -> Table:
    return labels(*values, untyped=True, dtype=pl.String)


def fit(table: Table, **settings: object) -> LabelEncoding:
    return LabelEncoding.fit(table, replace(SPEC, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "task", "classes"),
    [
        (text("no", "yes", None), "binary", ("no", "yes")),
        (text("b", "a", "c"), "multiclass", ("a", "b", "c")),
        (text("True", "false"), "binary", ("false", "true")),
        (labels(True, False), "binary", ("false", "true")),
        (text("1", "0", "NA", ""), "binary", ("0", "1")),
        (text("10", "9", "2.0"), "multiclass", ("2", "9", "10")),
        (labels(1.0, 2.0, float("nan")), "binary", ("1", "2")),
        (labels(*range(50)), "multiclass", tuple(map(str, range(50)))),
        (labels(*range(51)), "regression", ()),
        (labels(0.5, 1.0), "regression", ()),
        (labels("b", "a", dtype=pl.Categorical), "binary", ("a", "b")),
    ],
)
def test_auto_task(table, task, classes):
    encoding = fit(table)
    assert (encoding.task, encoding.classes) == (task, classes)
    assert encoding.num_outputs == (len(classes) if task == "multiclass" else 1)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (("1,5", "1.234", "NA", "0,125"), [1.5, 1234, np.nan, 0.125]),
        (("1,234.5", "2", "", "1,000"), [1234.5, 2, np.nan, 1000]),
    ],
)
@pytest.mark.parametrize("task", ["auto", "regression"])
def test_amounts_are_read_by_the_rules_of_numbers(values, wanted, task):
    fitted = fit(text(*values), task=task)
    encoding = LabelEncoding.from_json(json.loads(json.dumps(fitted.to_json())))
    assert (encoding, encoding.task, encoding.kind) == (fitted, "regression", "number")
    targets, labelled = encoding.apply(text(*values))
    assert labelled.tolist() == [True, True, False, True]
    amounts = targets * encoding.std + encoding.mean
    np.testing.assert_allclose(amounts[labelled], np.array(wanted)[labelled], rtol=1e-6)
    same, _ = encoding.apply(labels(*wanted))
    np.testing.assert_array_equal(same, targets)
    with pytest.raises(DataError, match=r"row 2 .* is text, not a number"):
        encoding.apply(text("1", "many"))


def test_classes_keep_their_names_also_if_they_look_like_amounts():
    assert fit(text("1,5", "2,5"), task="multiclass").classes == ("1,5", "2,5")
    assert fit(text("1,0", "2,0")).classes == ("1,0", "2,0")
    assert fit(text("007", "1,5")).classes == ("007", "1,5")


def test_multiclass_targets():
    encoding = fit(text("b", "a", "c", None))
    targets, labelled = encoding.apply(text("c", "new", None, "a"))
    assert targets.dtype == np.int64
    assert targets.tolist() == [2, -1, 0, 0]
    assert labelled.tolist() == [True, True, False, True]


def test_binary_targets_and_the_positive_class():
    train = text("no", "yes", None)
    targets, labelled = fit(train).apply(train)
    assert targets.dtype == np.float32
    assert targets.tolist() == [0, 1, 0]
    assert labelled.tolist() == [True, True, False]
    flipped = fit(train, positive="no")
    assert flipped.classes == ("yes", "no")
    assert flipped.apply(train)[0].tolist() == [1, 0, 0]
    assert fit(labels(1, 2), positive="1.0").classes == ("2", "1")
    assert fit(labels(True, False), positive="False").classes == ("true", "false")


def test_classes_are_the_same_however_spelt():
    encoding = fit(text("1", "2", "3"))
    assert encoding.apply(labels(3.0, None, 1.0))[0].tolist() == [2, 0, 0]
    assert encoding.apply(labels(3, 1))[0].tolist() == [2, 0]
    assert encoding.apply(text("01", "x"))[0].tolist() == [0, -1]
    assert fit(labels(True, False)).apply(labels(1, 0))[0].tolist() == [1, 0]
    assert not encoding.apply(text(None, None))[1].any()


def test_regression_targets_are_standardised():
    encoding = fit(labels(1.5, 3.5, None))
    assert (encoding.mean, encoding.std) == (2.5, 1.0)
    targets, labelled = encoding.apply(labels(4.5, float("nan")))
    assert targets.dtype == np.float32
    assert targets.tolist() == [2, 0]
    assert labelled.tolist() == [True, False]
    assert fit(labels("1", "3"), task="regression").mean == 2


def test_weights():
    train = text("a", "b", "a", "a", None, "c")
    targets, labelled = fit(train).apply(train)
    assert fit(train).weights(targets, labelled).tolist() == [1, 1, 1, 1, 0, 1]
    weights = fit(train, class_weights="balanced").weights(targets, labelled)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, [5 / 9, 5 / 3, 5 / 9, 5 / 9, 0, 5 / 3], rtol=1e-6)
    binary = text("n", "y", "n", "n")
    encoding = fit(binary, class_weights="balanced")
    np.testing.assert_allclose(encoding.weights(*encoding.apply(binary)), [2 / 3, 2, 2 / 3, 2 / 3])


def test_weight_of_a_class_not_in_training_is_zero():
    encoding = fit(text("a", "b", "c"), class_weights="balanced")
    weights = encoding.weights(*encoding.apply(text("a", "zzz")))
    np.testing.assert_allclose(weights, [1 / 3, 0])


@pytest.mark.parametrize(
    ("table", "settings", "match"),
    [
        (text("a", "a", None), {}, "has one class"),
        (labels(3.5, 3.5), {}, "has one class"),
        (text("7", "7"), {"task": "regression"}, "has one class"),
        (text(None, None), {}, "no value in any row"),
        (text("NA", ""), {}, "no value in any row"),
        (labels(float("nan"), float("nan")), {}, "no value in any row"),
        (labels(1.0, float("inf")), {}, "infinite in row 2"),
        (text("1", "2", "many"), {"task": "regression"}, "row 3 .* is text, not a number"),
        (text("a", "b", "c"), {"task": "binary"}, "has 3 classes, a binary task needs two"),
        (text("a", "b"), {"positive": "z"}, 'positive class "z" is not in the label'),
        (labels(date(2020, 1, 1)), {}, "is a date or time"),
        (labels([1], [2]), {}, "has the type List"),
    ],
)
def test_refused_labels(table, settings, match):
    with pytest.raises(DataError, match=match) as caught:
        fit(table, **settings)
    assert caught.value.where == "t.csv"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("table", "settings", "match"),
    [
        (text("a", "b"), {"task": "clustering"}, 'unknown task "clustering"'),
        (labels(0.5, 1.5), {"class_weights": "balanced"}, "`class_weights` is for"),
        (labels(0.5, 1.5), {"positive": "1.5"}, "`positive` is for a binary task"),
        (text("a", "b", "c"), {"positive": "a"}, "`positive` is for a binary task"),
    ],
)
def test_settings_that_do_not_fit(table, settings, match):
    with pytest.raises(ConfigError, match=match):
        fit(table, **settings)


def test_refused_at_test_time():
    with pytest.raises(DataError, match="class in row 2 that training did not have") as caught:
        fit(text("vera", "rosa")).apply(text("vera", "cleo"))
    assert not any(value in str(caught.value) for value in ("vera", "rosa", "cleo"))
    with pytest.raises(DataError, match="positive class") as caught:
        fit(text("vera", "rosa"), positive="cleo")
    assert not any(value in str(caught.value) for value in ("vera", "rosa"))
    with pytest.raises(DataError, match=r"row 1 .* is text"):
        fit(labels(0.5, 1.5)).apply(text("high"))
    with pytest.raises(DataError, match="without a label"):
        fit(text("a", "b")).apply(replace(text("a"), labels=None))


@pytest.mark.parametrize("table", [text("a", "b", "c"), labels(0.1, 0.25, 7.5), text("y", "n")])
def test_json_round_trip(table):
    encoding = fit(table)
    copy = LabelEncoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert copy == encoding
    for stored in ({}, {**encoding.to_json(), "task": "odd"}):
        with pytest.raises(DataError, match="stored label encoding cannot be read"):
            LabelEncoding.from_json(stored)
