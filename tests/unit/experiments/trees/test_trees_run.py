"""A federation beside boosted trees: what is trained on what, and on which rows it is scored."""

import numpy as np
import polars as pl
import pytest

from laser_vfl.experiments.trees.boosted_trees import MAX_CATEGORIES, BoostedTrees
from laser_vfl.experiments.trees.table_set import TableSet
from laser_vfl.experiments.trees.trees_run import MIN_ROWS, MODELS, Comparison

NUM = 600


def table_set(name="made up", task="binary"):
    """Two blocks of which each knows half of what decides; the shop has no labels."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, NUM))
    total = first + second
    blocks = {
        "bank": pl.DataFrame({"income": first, "noise": rng.standard_normal(NUM)}),
        "shop": pl.DataFrame(
            {"mood": np.array(["bad", "fair", "good"])[np.digitize(second, [-1, 1])]}
        ),
    }
    blocks["shop"] = blocks["shop"].with_columns(pl.when(pl.Series(second > -2)).then(pl.all()))
    targets = (total > 0).astype(np.int64) if task == "binary" else 1000 + 10 * total
    is_test = np.arange(NUM) % 3 == 0
    return TableSet(name, task, blocks, targets, is_test, ("bank",), "Made up.")


@pytest.fixture(scope="module", params=["binary", "regression"])
def results(request):
    return Comparison(table_set(task=request.param), p=0.3, seed=0, epochs=8).results()


def test_each_model_is_scored_together_and_alone(results):
    federation, pooled, own = results
    assert tuple(result["model"] for result in results) == MODELS
    assert all(set(r["by_blocks"]) == {"1", "2"} for r in results)
    assert set(federation["alone"]) == set(own["alone"]) == {"bank"}
    assert pooled["alone"] == {}
    assert {r["metric"] for r in results} <= {"auc", "r2"}


def test_more_blocks_are_better_than_the_organisation_s_own_trees(results):
    federation, pooled, own = results
    assert federation["by_blocks"]["2"] > own["by_blocks"]["2"]
    assert pooled["by_blocks"]["2"] > own["by_blocks"]["2"]
    assert own["overall"] == own["alone"]["bank"], "its own block is all that it sees"


def test_a_row_that_is_null_throughout_is_a_missing_block():
    whole = Comparison(table_set(), p=0.0, seed=0, epochs=1)
    shop = whole._train_seen[:, 1]
    assert 0 < np.count_nonzero(~shop) < 0.1 * len(shop)
    assert whole._train_seen[:, 0].all()


def test_too_few_rows_have_no_score():
    few = table_set().reduced(200, MIN_ROWS - 1)
    assert (~few.is_test).sum() == 200
    for result in Comparison(few, p=0.0, seed=0, epochs=1).results():
        assert result["overall"] is None


def test_rows_are_left_out_by_chance_and_the_same_every_time():
    one, again = (table_set().reduced(50, 20) for _ in range(2))
    assert one.targets.tolist() == again.targets.tolist()
    assert (~one.is_test).sum() == 50
    assert one.is_test.sum() == 20
    assert one.blocks["bank"].equals(again.blocks["bank"])
    assert len(table_set().reduced(10_000, 10_000).targets) == NUM


def test_trees_take_text_unseen_values_and_nulls():
    text = [f"value {i % 400}" for i in range(1200)] + [None] * 10
    columns = pl.DataFrame({"text": text, "number": [float(i % 7) for i in range(1210)]})
    targets = np.array([i % 400 < 40 for i in range(1200)] + [False] * 10)
    trees = BoostedTrees("binary", 0).fit(columns, targets)
    codes = trees._numbers(columns)[:, 0]
    assert np.isnan(codes[-10:]).all()
    assert codes[:-10].max() == MAX_CATEGORIES - 1
    new = pl.DataFrame({"text": ["value 0", "never seen", None], "number": [1.0, None, 2.0]})
    assert trees._numbers(new)[1, 0] == MAX_CATEGORIES - 1
    assert np.isfinite(trees.predict(new)).all()
