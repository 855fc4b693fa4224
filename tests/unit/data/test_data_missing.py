"""Missing blocks: as often as asked for, independent, and the same for the same seed."""

import numpy as np
import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.missing import block_probabilities, observed_blocks

NUM = 40_000


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_blocks_are_missing_as_often_as_asked_for(p):
    observed = observed_blocks(NUM, 4, p, seed=3, table="train")
    assert observed.shape == (NUM, 4)
    assert observed.dtype == bool
    assert np.abs(1 - observed.mean(axis=0) - p).max() < 0.015
    none_left = (~observed).all(axis=1).mean()
    assert none_left == pytest.approx(p**4, abs=0.006)  # as if blocks were independent


def test_blocks_and_tables_are_independent():
    train, test = (observed_blocks(NUM, 3, 0.5, seed=0, table=t) for t in ("train", "test"))
    columns = np.concatenate([train, test], axis=1).astype(float)
    off_diagonal = np.corrcoef(columns.T)[~np.eye(6, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.025


def test_a_seed_repeats_and_another_differs():
    def draw(seed):
        return observed_blocks(1000, 4, 0.5, seed=seed, table="train")

    assert np.array_equal(draw(1), draw(1))
    assert 0.4 < (draw(1) != draw(2)).mean() < 0.6


def test_more_clients_or_samples_leave_the_others_as_they_were():
    many = observed_blocks(1000, 8, 0.5, seed=1, table="test")
    assert np.array_equal(many[:300, :4], observed_blocks(300, 4, 0.5, seed=1, table="test"))


def test_what_is_missing_seldom_is_missing_often():
    seldom, often = (observed_blocks(1000, 4, p, seed=1, table="train") for p in (0.1, 0.5))
    assert (often <= seldom).all()


def test_the_draw_never_changes():
    """Other draws would make published figures impossible to repeat."""
    observed = observed_blocks(6, 3, 0.5, seed=7, table="train")
    rows = ["".join(str(int(there)) for there in row) for row in observed]
    assert rows == ["111", "111", "010", "111", "011", "100"]


def test_beta_gives_each_block_a_probability_of_its_own():
    p = np.array(block_probabilities(4000, "beta", seed=5, table="train"))
    assert p.mean() == pytest.approx(0.5, abs=0.015)
    assert p.var() == pytest.approx(1 / 20, abs=0.005)  # that of Beta(2, 2)
    assert (p < 0.25).mean() == pytest.approx(3 * 0.25**2 - 2 * 0.25**3, abs=0.02)
    observed = observed_blocks(NUM, 4, "beta", seed=5, table="train")
    assert np.abs(1 - observed.mean(axis=0) - p[:4]).max() < 0.015
    assert p[:4].tolist() != block_probabilities(4, "beta", seed=5, table="test")


@pytest.mark.parametrize("p", [-0.1, 1.0, 7, float("nan"), "often"])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ConfigError, match="cannot be missing with probability") as caught:
        observed_blocks(5, 2, p, seed=0, table="train")
    assert "beta" in caught.value.hint


@pytest.mark.parametrize(("clients", "seed", "match"), [(0, 0, "0 clients"), (2, -1, "seed is -1")])
def test_wrong_numbers_are_refused(clients, seed, match):
    with pytest.raises(ConfigError, match=match):
        observed_blocks(5, clients, 0.5, seed=seed, table="train")


def test_samples_that_miss_the_same_blocks_together_are_spread_by_chance():
    observed = observed_blocks(1000, 4, 0.5, seed=1, table="train", together=100)
    drawn = observed_blocks(10, 4, 0.5, seed=1, table="train")
    patterns, counts = np.unique(observed, axis=0, return_counts=True)
    expected, times = np.unique(drawn, axis=0, return_counts=True)
    assert np.array_equal(patterns, expected)
    assert np.array_equal(counts, 100 * times)
    assert (np.diff(observed.astype(int), axis=0) != 0).any(axis=1).mean() > 0.5
    test = observed_blocks(1000, 4, 0.5, seed=1, table="test", together=100)
    assert not np.array_equal(observed, test)
