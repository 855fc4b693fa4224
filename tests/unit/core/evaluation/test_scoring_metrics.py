"""Metrics against scikit-learn, and where there is nothing to measure."""

import numpy as np
import pytest

from laser_vfl.core.evaluation.metrics import (
    accuracy_over_clients,
    auc,
    best_constant,
    f1,
    f1_over_clients,
    r2,
    rmse,
    score,
)
from laser_vfl.core.randomness import RandomStream, random_words


def uniform(num, counter):
    """Numbers in 0..1 that are the same for ever."""
    words = random_words(num, seed=0, stream=RandomStream.TASKS, counter=counter)
    return words.astype(np.float64) / 2**64


@pytest.mark.parametrize(
    ("case", "levels", "accuracy", "f1_score", "roc_auc_score"),
    [
        (0, 3, 0.7, 0.625, 0.8205128205128205),
        (1, 9, 0.5, 0.2857142857142857, 0.5222222222222221),
        (2, 10**6, 0.6, 0.5384615384615384, 0.8177777777777777),
    ],
    ids=["four-scores", "ten-scores", "no-ties"],
)
def test_binary_scores_equal_scikit_learns(case, levels, accuracy, f1_score, roc_auc_score):
    """Values of scikit-learn 1.9.1; importing it would take a tenth of all unit tests' time."""
    targets = (uniform(60, 2 * case) < 0.3).astype(float)
    scores = np.floor(uniform(60, 2 * case + 1) * levels)
    scores = scores - levels // 2 + targets if levels < 100 else scores / levels - 0.5 + targets / 3
    assert len(np.unique(scores)) == {3: 4, 9: 10, 10**6: 60}[levels]
    got = score("binary", scores, targets)
    assert got == pytest.approx({"accuracy": accuracy, "f1": f1_score, "auc": roc_auc_score})

    above = [(p > n) + (p == n) / 2 for p in scores[targets == 1] for n in scores[targets == 0]]
    assert got["auc"] == pytest.approx(np.mean(above))


def test_multiclass_and_regression_scores_equal_scikit_learns():
    targets = np.floor(uniform(50, 10) * 4)
    predictions = np.where(uniform(50, 11) < 0.5, targets, np.floor(uniform(50, 12) * 4))
    assert score("multiclass", predictions, targets) == pytest.approx({"accuracy": 0.62})
    targets = uniform(50, 13) * 8 - 1
    predictions = targets + uniform(50, 14) - 0.3
    assert score("regression", predictions, targets) == pytest.approx(
        {"rmse": 0.33268213416156633, "r2": 0.9827358102020378}
    )


def test_auc_counts_ties_as_half():
    positive = np.array([True, True, False, False])
    assert auc(np.zeros(4), positive) == 0.5
    assert auc(np.array([1.0, 0, 0, -1]), positive) == 0.875
    assert auc(np.array([2.0, 1, 0, -1]), positive) == 1
    assert auc(np.array([-2.0, -1, 0, 1]), positive) == 0


def test_f1_has_the_two_that_the_papers_appendix_forgot():
    # Precision 1/2, recall 1: 2 · ½ · 1 / (½ + 1).
    assert f1(np.array([True, True]), np.array([True, False])) == pytest.approx(2 / 3)


def test_one_class_has_no_auc():
    ones = score("binary", np.array([1.0, -1.0]), np.ones(2))
    assert ones == {"accuracy": 0.5, "f1": pytest.approx(2 / 3), "auc": None}
    zeros = score("binary", np.array([-1.0, -1.0]), np.zeros(2))
    assert zeros == {"accuracy": 1.0, "f1": 0.0, "auc": None}


@pytest.mark.parametrize("task", ["multiclass", "binary", "regression"])
def test_without_samples_every_score_is_none(task):
    got = score(task, np.zeros(0), np.zeros(0))
    assert got
    assert set(got.values()) == {None}


def test_without_variance_there_is_no_r2():
    assert r2(np.array([1.0, 2.0]), np.array([3.0, 3.0])) is None
    assert r2(np.array([1.0]), np.array([3.0])) is None
    assert rmse(np.array([1.0]), np.array([3.0])) == 2.0


def test_accuracy_over_clients_is_the_mean_over_heads_then_over_samples():
    random = np.random.default_rng(2)
    num_samples, num_clients = 60, 4
    observes = random.random((num_samples, num_clients)) < 0.5
    heads = np.array([True, False, True, True])
    correct = random.random((num_samples, num_clients)) < 0.7
    judged = observes & heads

    by_sample = [correct[n, judged[n]].mean() for n in range(num_samples) if judged[n].any()]

    names = [",".join(map(str, np.flatnonzero(row))) for row in observes]
    reported = []
    for k in np.flatnonzero(heads):
        sets = {names[n] for n in range(num_samples) if observes[n, k]}
        rows = {name: [n for n in range(num_samples) if names[n] == name] for name in sets}
        reported.append({name: (correct[n, k].mean(), len(n)) for name, n in rows.items()})
    got, counted = accuracy_over_clients(reported)
    assert counted == len(by_sample) < num_samples
    assert got == pytest.approx(np.mean(by_sample))


def test_over_clients_that_have_seen_nothing():
    assert accuracy_over_clients([]) == (None, 0)
    assert accuracy_over_clients([{"a": (0.0, 0)}, {}]) == (None, 0)
    assert accuracy_over_clients([{"a,b": (0.0, 0)}, {"a,b": (0.5, 4)}]) == (0.5, 4)


def test_f1_over_clients_is_the_mean_of_those_that_have_one():
    assert f1_over_clients([0.5, None, 1.0]) == 0.75
    assert f1_over_clients([None]) is None
    assert f1_over_clients([]) is None


@pytest.mark.parametrize("task", ["multiclass", "binary", "regression"])
def test_no_constant_prediction_is_better_than_the_best(task):
    targets = np.floor(uniform(40, 50) * (3 if task != "binary" else 2))
    targets = targets + uniform(40, 51) if task == "regression" else targets
    tried = np.linspace(-1, 4, 501) if task == "regression" else [0.0, 1.0, 2.0, -1.0]
    reached = [score(task, np.full(40, value), targets) for value in tried]
    for name, best in best_constant(task, targets).items():
        extreme = min if name == "rmse" else max
        assert best == pytest.approx(extreme(entry[name] for entry in reached), abs=1e-4)


def test_the_best_constant_where_there_is_little_to_predict():
    none = np.zeros(0)
    assert best_constant("multiclass", none) == {"accuracy": None}
    assert best_constant("binary", none) == {"accuracy": None, "f1": None, "auc": None}
    assert best_constant("regression", none) == {"rmse": None, "r2": None}
    assert best_constant("binary", np.zeros(4)) == {"accuracy": 1.0, "f1": 0.0, "auc": None}
    assert best_constant("regression", np.ones(4)) == {"rmse": 0.0, "r2": None}
    # A class that training did not have is never predicted, not even by a constant.
    assert best_constant("multiclass", np.array([-1.0, -1, -1, 2, 2, 0])) == {
        "accuracy": pytest.approx(2 / 6)
    }
    assert best_constant("multiclass", np.array([-1.0])) == {"accuracy": 0.0}
