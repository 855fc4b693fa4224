"""The federation in one process: it learns, and predicts from whatever there is."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from laser_vfl import Simulation, simulate
from laser_vfl.core.errors import DataError
from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.methods.profiles import PROFILES

FAST = {
    "hidden": [16],
    "representation_dim": 8,
    "batch_size": 32,
    "epochs": 8,
    "optimizer": OptimizerSettings(lr=0.03),
}


def world(num=160, seed=0, p_miss=0.3):
    """Two blocks of which each knows half of what decides the class."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((num, 2))
    labels = np.array(["low", "mid", "top"])[(latent > 0).sum(axis=1)]
    blocks = {}
    for k, name in enumerate(("bank", "shop")):
        block = latent[:, [k]] + 0.1 * rng.standard_normal((num, 3))
        block[rng.random(num) < p_miss] = np.nan
        blocks[name] = block
    return blocks, labels


@pytest.fixture(scope="module")
def trained():
    return simulate(*world(), **FAST)


def test_it_learns_and_more_blocks_are_better(trained):
    blocks, labels = world(seed=1, p_miss=0.0)
    alone = {**blocks, "shop": np.full_like(blocks["shop"], np.nan)}
    assert trained.score(blocks, labels) > 0.8
    assert trained.score(blocks, labels) > trained.score(alone, labels) + 0.1


def test_the_score_is_over_the_clients_of_a_sample_and_then_over_samples(trained):
    blocks, labels = world(seed=2)
    right = {name: trained.predict(blocks, name) == labels for name in blocks}
    held = {name: ~np.isnan(block[:, 0]) for name, block in blocks.items()}
    per_sample = [
        np.mean([right[name][n] for name in blocks if held[name][n]])
        for n in range(len(labels))
        if any(held[name][n] for name in blocks)
    ]
    assert trained.score(blocks, labels) == pytest.approx(np.mean(per_sample))


def test_a_sample_that_nobody_holds_is_none(trained):
    blocks, _ = world(num=4, p_miss=0.0)
    for block in blocks.values():
        block[2] = np.nan
    blocks["bank"][1] = np.nan
    answer = trained.predict(blocks)
    assert [value is None for value in answer] == [False, False, True, False]
    assert trained.predict(blocks, "bank")[1] is None
    assert trained.predict(blocks, "shop")[1] == answer[1]


def test_classes_come_back_as_they_were_given():
    blocks, _ = world(p_miss=0.0)
    labels = np.where(blocks["bank"][:, 0] > 0, 7, 3)
    trained = simulate(blocks, {"shop": labels}, **FAST)
    answer = trained.predict(blocks)
    assert answer.dtype == labels.dtype
    assert set(answer.tolist()) == {3, 7}
    assert trained.score(blocks, {"shop": labels}) > 0.9, "shop predicts from bank's block"


def test_regression():
    blocks, _ = world(p_miss=0.0)
    amounts = 100 + 20 * blocks["bank"][:, 0] + 10 * blocks["shop"][:, 1]
    trained = simulate(blocks, amounts, **{**FAST, "epochs": 15})
    assert trained.score(blocks, amounts) > 0.8
    assert trained.predict(blocks).mean() == pytest.approx(amounts.mean(), abs=3)


def test_the_same_seed_gives_the_same_federation():
    blocks, labels = world()
    first, second = (
        simulate(blocks, labels, **FAST | {"epochs": 1}).predict(blocks) for _ in range(2)
    )
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(
    ("blocks", "labels", "message"),
    [
        ({}, [], "at least two dimensions"),
        ({"a": np.zeros(3)}, np.zeros(3), "at least two dimensions"),
        ({"a": np.zeros((3, 1)), "b": np.zeros((4, 1))}, np.zeros(3), "a row for each sample"),
        ({"a": np.zeros((3, 1))}, np.zeros(2), "one value for each of the 3 samples"),
        ({"a": np.zeros((3, 1))}, {"b": np.zeros(3)}, "the roster, which has a"),
        ({"a": np.eye(3)}, np.ones(3), "one class"),
        ({"a": np.array([["1"], ["2"], ["x"]])}, np.arange(3), "a: .* row 2"),
        ({"a": np.array([[1], [object()], [2]])}, np.arange(3), "a: .* row 1"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(blocks, labels, message):
    with pytest.raises(DataError, match=message):
        Simulation(**FAST).fit(blocks, labels)


def test_other_blocks_than_in_training_are_refused(trained):
    with pytest.raises(DataError, match="bank, shop"):
        trained.predict({"gym": np.zeros((2, 3))})


def test_a_block_that_is_left_out_is_missing_for_all_samples(trained):
    blocks, _ = world(seed=1, p_miss=0.3)
    missing = {**blocks, "bank": np.full_like(blocks["bank"], np.nan)}
    left_out = trained.predict({"shop": blocks["shop"]})
    assert left_out.tolist() == trained.predict(missing).tolist()


def test_a_frame_that_is_left_out_is_missing_for_all_samples():
    rng = np.random.default_rng(3)
    numbers = rng.standard_normal((120, 2))
    frame = pl.DataFrame({"age": numbers[:, 0], "plan": ["a", "b", "c"] * 40})
    blocks = {"bank": numbers, "shop": frame}
    trained = simulate(blocks, (numbers[:, 0] > 0).astype(int), **FAST | {"epochs": 1})
    left_out = trained.predict({"bank": numbers})
    assert left_out.tolist() == trained.predict({**blocks, "shop": frame.clear(120)}).tolist()
    assert len(left_out) == 120


def test_numbers_in_an_array_of_objects_are_numbers():
    blocks, labels = world()
    trained = simulate({**blocks, "bank": blocks["bank"].astype(object)}, labels, **FAST)
    same = simulate(blocks, labels, **FAST)
    assert trained.predict(blocks).tolist() == same.predict(blocks).tolist()


def test_blocks_may_be_frames():
    rng = np.random.default_rng(1)
    numbers, cities = rng.normal(size=(160, 3)), rng.integers(4, size=160)
    labels = (numbers[:, 0] + (cities == 2) > 0.5).astype(int)
    is_gone = np.arange(160) % 8 == 0
    numbers[is_gone] = np.nan
    named = [None if k % 8 == 1 else f"city {c}" for k, c in enumerate(cities)]
    cities_frame = pl.DataFrame({"city": named})
    frames = {"bank": pl.DataFrame(numbers), "shop": cities_frame}
    of_frames = simulate(frames, labels, **FAST)
    of_arrays = simulate({"bank": numbers, "shop": cities_frame}, labels, **FAST)
    assert of_frames.score(frames, labels) > max(labels.mean(), 1 - labels.mean()) + 0.15
    one, other = of_frames.decisions(frames), of_arrays.decisions(frames | {"bank": numbers})
    for name in ("bank", "shop"):
        np.testing.assert_array_equal(one[name][0], other[name][0])
    assert not one["bank"][1][is_gone].any()
    assert not one["shop"][1][1::8].any()


@pytest.mark.parametrize("method", PROFILES)
def test_every_method_sees_categories_as_if_they_were_one_hot_in_the_table(method):
    rng = np.random.default_rng(0)
    cities, sizes = rng.integers(3, size=(2, 120))
    frames = {
        name: pl.DataFrame({"code": [f"value {k}" for k in codes], "x": rng.normal(size=120)})
        for name, codes in (("bank", cities), ("shop", sizes))
    }
    arrays = {name: _one_hot(frame) for name, frame in frames.items()}
    labels = ((cities == 1) | (sizes == 2)).astype(int)
    settings = {**FAST, "method": method, "epochs": 2}
    of_frames = simulate(frames, labels, **settings).decisions(frames)
    of_arrays = simulate(arrays, labels, scaling="none", **settings).decisions(arrays)
    assert of_frames.keys() == of_arrays.keys()
    for name in of_frames:  # a vote that is a tie is decided by chance, by a hair
        np.testing.assert_allclose(of_frames[name][0], of_arrays[name][0], atol=0.01)


def _one_hot(frame):
    """Return the rows of a frame as its encoding has them: unseen, missing, then by frequency."""
    codes, numbers = frame["code"].to_numpy().astype(str), frame["x"].to_numpy()
    values, counts = np.unique(codes, return_counts=True)
    ordered = values[np.lexsort((values, -counts))]
    columns = [np.zeros(len(codes)), np.zeros(len(codes)), *(codes == v for v in ordered)]
    return np.column_stack([*columns, (numbers - numbers.mean()) / numbers.std()])


def test_importing_the_package_is_light():
    code = "import sys, laser_vfl; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def with_text(blocks):
    """Tables in which one client knows words for what it has numbers for."""
    bank, shop = (pl.DataFrame(block, ["x", "y", "z"]).fill_nan(None) for block in blocks.values())
    up = pl.when(pl.col("x") > 0).then(pl.lit("up"))
    return {
        "bank": bank,
        "shop": shop.with_columns(x=up.when(pl.col("x") <= 0).then(pl.lit("down"))),
    }


def test_tables_with_text_are_learnt_from():
    blocks, labels = world(num=400)
    options = {"width": 16, "dropout": 0.0}
    model = {"representation": "tabular", "representation_options": options}
    federation = simulate(with_text(blocks), labels, **FAST | model)
    blocks, labels = world(num=400, seed=1, p_miss=0.0)
    tables = with_text(blocks)
    assert federation.score(tables, labels) > 0.8
    nobody = {name: table.clear(2) for name, table in tables.items()}
    assert federation.predict(nobody).tolist() == [None, None]
