"""Private labels: what a label can be is not looked up in the table, and noise follows people."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.core.privacy.label_noise import DiscreteLaplace, RandomisedResponse
from laser_vfl.data import KnownLabels, LabelEncoding, PrivateLabels, Table, TableSpec

SPEC = TableSpec(id="id", label="y", known=KnownLabels())
CLASSES = replace(SPEC, known=KnownLabels(classes=("b", "a", "c")))
AMOUNT = replace(SPEC, known=KnownLabels(bounds=(0.0, 10.0)))
PRIVATE = PrivateLabels(1.0, bytes(32))


def table(*values, spec=SPEC, ids=None, dtype=pl.String, untyped=True):
    series = pl.Series("y", values, dtype=dtype, strict=False)
    names = ids or [f"person-{i}" for i in range(len(values))]
    return Table(Path("t.csv"), spec, names, ("y",), pl.DataFrame(), series, untyped=untyped)


def told(rows, spec=None):
    spec = spec or rows.spec
    return PRIVATE.told(rows, LabelEncoding.fit(rows, spec))


@pytest.mark.parametrize(
    "values", [("a", "a"), ("c",), ("a", "b", "c"), (None, "b"), ("b", "b", "b", "b")]
)
def test_the_classes_are_the_given_ones_whoever_is_in_the_table(values):
    encoding = LabelEncoding.fit(table(*values), CLASSES)
    assert (encoding.task, encoding.kind, encoding.classes) == (
        "multiclass",
        "text",
        ("a", "b", "c"),
    )
    assert PRIVATE.noise(encoding) == RandomisedResponse(1.0, 3)


@pytest.mark.parametrize("values", [("1", "3"), ("1", "1"), ("2.0",), ("", "3")])
def test_numbers_and_text_are_told_apart_by_the_classes_and_not_by_the_rows(values):
    numbers = replace(SPEC, known=KnownLabels(classes=("1", "2", "3")))
    texts = replace(SPEC, known=KnownLabels(classes=("1", "2.0", "3", "many")))
    assert LabelEncoding.fit(table(*values), numbers).kind == "number"
    assert LabelEncoding.fit(table(*values), texts).kind == "text"


@pytest.mark.parametrize(
    ("rows", "kind", "classes"),
    [
        (table("1", "1"), "number", ("0", "1")),
        (table("0", None, "1"), "number", ("0", "1")),
        (table("False"), "boolean", ("false", "true")),
        (table(True, True, dtype=pl.Boolean, untyped=False), "boolean", ("false", "true")),
        (table(1, 0, dtype=pl.Int64, untyped=False), "number", ("0", "1")),
    ],
)
def test_flags_need_no_list(rows, kind, classes):
    encoding = LabelEncoding.fit(rows, SPEC)
    assert (encoding.task, encoding.kind, encoding.classes) == ("binary", kind, classes)


@pytest.mark.parametrize("values", [("no", "yes"), ("0", "1", "2"), ("0.5",), ("-1", "1")])
def test_any_other_label_needs_one(values):
    with pytest.raises(ConfigError, match="not given") as caught:
        LabelEncoding.fit(table(*values), SPEC)
    assert "classes:" in caught.value.hint
    assert "yes" not in str(caught.value)


def test_classes_that_are_the_same_are_refused():
    for classes in (("1", "1.0"), ("1", "na")):
        with pytest.raises(ConfigError, match="there twice"):
            LabelEncoding.fit(table("1"), replace(SPEC, known=KnownLabels(classes=classes)))


@pytest.mark.parametrize("classes", [("a", "b", "c"), ("a", "b")])
def test_a_class_that_is_not_given_names_the_row_and_nothing_else(classes):
    spec = replace(SPEC, known=KnownLabels(classes=classes))
    with pytest.raises(DataError, match="the label of row 3") as caught:
        told(table("a", None, "zzz", "b", spec=spec))
    assert "zzz" not in str(caught.value)


def test_a_test_table_may_have_other_classes_and_is_left_as_it_is():
    encoding = LabelEncoding.fit(table("a", "b"), CLASSES)
    targets, labelled = encoding.apply(table("c", "zzz", None))
    assert (targets.tolist(), labelled.tolist()) == ([2, -1, 0], [True, True, False])


@pytest.mark.parametrize("spec", [CLASSES, AMOUNT])
def test_what_is_told_follows_the_person_into_any_table(spec):
    values = ["a", "b", "c"] if spec is CLASSES else ["0", "4.5", "10"]
    rows = table(*values * 40, spec=spec)
    noisy, _ = told(rows)
    order = np.random.default_rng(1).permutation(120)[:50]
    some = table(*[(values * 40)[i] for i in order], spec=spec, ids=[rows.ids[i] for i in order])
    assert (told(some)[0] == noisy[order]).all()
    assert (noisy != LabelEncoding.fit(rows, spec).apply(rows)[0]).any()


def test_the_place_of_the_positive_class_does_not_matter():
    rows = table(*["yes", "no"] * 100)
    by_name = []
    for positive in ("yes", "no"):
        known = KnownLabels(classes=("no", "yes"))
        spec = replace(SPEC, known=known, positive=positive)
        encoding = LabelEncoding.fit(rows, spec)
        assert encoding.classes[1] == positive
        noisy, _ = PRIVATE.told(rows, encoding)
        assert noisy.dtype == np.float32
        by_name.append([encoding.classes[int(place)] for place in noisy])
    assert by_name[0] == by_name[1]
    assert by_name[0] != ["yes", "no"] * 100


def test_who_has_no_label_is_told_as_it_is():
    rows = table("a", None, "b", None, "c", spec=CLASSES)
    noisy, labelled = told(rows)
    assert labelled.tolist() == [True, False, True, False, True]
    assert noisy[~labelled].tolist() == [0, 0]
    assert noisy.dtype == np.int64


def test_an_amount_is_clipped_and_stays_within_its_bounds():
    rows = table(*["-7", "5", "12", None] * 50, spec=AMOUNT)
    encoding = LabelEncoding.fit(rows, AMOUNT)
    assert PRIVATE.noise(encoding) == DiscreteLaplace(1.0)
    noisy, labelled = PRIVATE.told(rows, encoding)
    amounts = noisy[labelled] * encoding.std + encoding.mean
    assert noisy.dtype == np.float32
    assert amounts.min() == pytest.approx(0)
    assert amounts.max() == pytest.approx(10)
    ends = table(*["0", "5", "10", None] * 50, spec=AMOUNT)
    assert (told(ends)[0] == noisy).all(), "what is beyond a bound is like the bound"


def test_class_weights_come_from_what_is_told():
    spec = replace(SPEC, class_weights="balanced")
    rows = table(*["0"] * 190, *["1"] * 10, spec=spec)
    encoding = LabelEncoding.fit(rows, spec)
    noisy, labelled = PRIVATE.told(rows, encoding)
    weights = encoding.weights(noisy, labelled)
    share = noisy.mean()
    assert weights[noisy == 1][0] == pytest.approx(0.5 / share, rel=1e-5)
    assert weights[noisy == 0][0] == pytest.approx(0.5 / (1 - share), rel=1e-5)
