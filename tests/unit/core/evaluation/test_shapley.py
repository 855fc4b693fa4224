"""Shapley values by their axioms, by the definition with orders, and as an estimate."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.core.evaluation.shapley import (
    NUM_ORDERS,
    Worth,
    curve,
    exact_values,
    prefixes,
    random_orders,
    sampled_values,
)
from laser_vfl.core.subsets import clients_in, mask_of

CLIENTS = st.sets(st.integers(0, 63), min_size=1, max_size=5)
VALUES = st.floats(-10, 10)
NEAR = {"abs": 1e-9}


def subsets_of(players):
    members = clients_in(players)
    return [
        mask_of(m for place, m in enumerate(members) if choice >> place & 1)
        for choice in range(1 << len(members))
    ]


@st.composite
def games(draw, num=1):
    """Players anywhere in the roster, and a value for each subset, in `num` games."""
    players = mask_of(draw(CLIENTS))
    return players, *({subset: draw(VALUES) for subset in subsets_of(players)} for _ in range(num))


def values_of(shapley):
    assert not shapley.unknown
    return {player: worth.value for player, worth in shapley.worths.items()}


def exactly(players, game):
    return values_of(exact_values(players, game.get))


def with_every_order(players, game):
    return sampled_values(players, game.get, list(permutations(clients_in(players))))


@given(games())
def test_the_values_of_all_are_what_all_add(drawn):
    players, game = drawn
    assert sum(exactly(players, game).values()) == pytest.approx(game[players] - game[0], **NEAR)


@given(games(), st.data())
def test_players_who_add_the_same_have_the_same(drawn, data):
    players, game = drawn
    first, second = (data.draw(st.sampled_from(clients_in(players))) for _ in range(2))

    def swapped(subset):
        swap = {first: second, second: first}
        return mask_of(swap.get(player, player) for player in clients_in(subset))

    even = {subset: game[subset] + game[swapped(subset)] for subset in game}
    values = exactly(players, even)
    assert values[first] == pytest.approx(values[second], **NEAR)


@given(games(), st.data())
def test_who_adds_nothing_has_nothing(drawn, data):
    players, game = drawn
    idle = 1 << data.draw(st.sampled_from(clients_in(players)))
    without = {subset: game[subset & ~idle] for subset in game}
    values = exactly(players, without)
    assert values[idle.bit_length() - 1] == pytest.approx(0, **NEAR)
    others = exactly(players & ~idle, without)
    assert {k: v for k, v in values.items() if 1 << k != idle} == pytest.approx(others, **NEAR)


@given(games(num=2), VALUES)
def test_values_are_linear_in_the_game(drawn, factor):
    players, first, second = drawn
    both = {subset: first[subset] + factor * second[subset] for subset in first}
    one, other = exactly(players, first), exactly(players, second)
    expected = {player: one[player] + factor * other[player] for player in one}
    assert exactly(players, both) == pytest.approx(expected, abs=1e-7)


@given(games())
def test_enumerating_subsets_is_averaging_over_all_orders(drawn):
    players, game = drawn
    sampled = with_every_order(players, game)
    assert values_of(sampled) == pytest.approx(exactly(players, game), **NEAR)


def test_a_game_by_hand():
    """A left glove and two right ones: a pair is worth 1."""
    game = {0: 0, 1: 0, 2: 0, 4: 0, 3: 1, 5: 1, 6: 0, 7: 1}
    assert exactly(0b111, game) == pytest.approx({0: 2 / 3, 1: 1 / 6, 2: 1 / 6})


def test_a_game_without_players():
    assert exact_values(0, {0: 1.0}.get).worths == {}
    assert sampled_values(0, {0: 1.0}.get, [(0, 1)]).worths == {}


@given(games(), st.integers(0, 2**63 - 1))
def test_in_every_draw_the_estimates_sum_to_what_all_add(drawn, seed):
    players, game = drawn
    sampled = sampled_values(players, game.get, random_orders(64, seed=seed))
    total = sum(values_of(sampled).values())
    assert total == pytest.approx(game[players] - game[0], abs=1e-7)


def test_estimates_are_within_their_error_of_the_exact_values():
    players = 0b111111
    game = dict(enumerate(np.random.default_rng(4).normal(size=64).tolist()))
    exact = exactly(players, game)
    errors = []
    for seed in range(100):
        sampled = sampled_values(players, game.get, random_orders(6, seed=seed))
        for player, worth in sampled.worths.items():
            errors.append(abs(worth.value - exact[player]) / worth.standard_error)
    # Student's t with 19 degrees of freedom: 94 % within two standard errors, 99.99 % within five.
    assert 0.91 < sum(error < 2 for error in errors) / len(errors) < 0.97
    assert max(errors) < 5


def test_the_error_is_that_of_a_mean():
    game = {0: 0.0, 1: 1.0, 2: 0.0, 3: 4.0}
    sampled = sampled_values(0b11, game.get, [(0, 1), (1, 0), (0, 1), (1, 0)])
    # 1, 4, 1, 4: mean 2.5, standard deviation sqrt(3), and four of them.
    assert sampled.worths[0] == Worth(2.5, pytest.approx(3**0.5 / 2))
    assert sampled_values(0b11, game.get, [(0, 1)]).worths[0] == Worth(1.0, None)


def test_an_unknown_subset_leaves_every_exact_value_open():
    game = {subset: float(subset) for subset in range(8) if subset not in (3, 6)}
    shapley = exact_values(0b111, game.get)
    assert shapley.unknown == (0b011, 0b110)
    assert set(shapley.worths.values()) == {Worth(None)}


def test_an_unknown_subset_leaves_those_open_whose_part_depends_on_it():
    game = {0: 0.0, 1: 1.0, 2: 1.0, 3: None, 7: 3.0, 4: 2.0, 12: 3.0, 14: 3.5, 15: 4.0}
    shapley = sampled_values(0b111, game.get, [(0, 1, 2)])
    assert shapley.unknown == (3,)
    assert shapley.worths == {0: Worth(1.0), 1: Worth(None), 2: Worth(None)}
    # One order in which it cannot be told is enough.
    shapley = sampled_values(0b111, {**game, 5: 2.0}.get, [(0, 2, 1), (0, 1, 2)])
    assert [worth.value for worth in shapley.worths.values()] == [1.0, None, None]


def test_orders_follow_from_the_seed_and_are_all_different():
    orders = random_orders(12, seed=7)
    assert orders == random_orders(12, seed=7) != random_orders(12, seed=8)
    assert len(set(orders)) == NUM_ORDERS
    # Releases that drew other orders would have no subset in common.
    assert random_orders(6, seed=7)[:2] == [(4, 2, 1, 3, 0, 5), (4, 5, 2, 1, 3, 0)]
    assert all(sorted(order) == list(range(12)) for order in orders)
    first = [random_orders(3, seed=seed)[0] for seed in range(600)]
    counts = [first.count(order) for order in set(first)]
    assert len(counts) == factorial(3)
    assert min(counts) > 70


def test_prefixes_leave_out_who_does_not_play():
    assert list(prefixes((2, 0, 3, 1), 0b0011)) == [0, 0b01, 0b11]


def test_the_curve_has_the_scores_of_equally_many_missing_blocks():
    scores = {0b111: 0.9, 0b011: 0.7, 0b101: 0.8, 0b110: 0.6, 0b001: 0.5}
    points = curve(scores, 3)
    assert [(p.num_missing, p.num_subsets) for p in points] == [(0, 1), (1, 3), (2, 1)]
    assert [p.mean for p in points] == pytest.approx([0.9, 0.7, 0.5])
    assert (points[1].lowest, points[1].highest) == (0.6, 0.8)
    assert [p.num_missing for p in curve({0b011: 0.7}, 3)] == [1]
    assert curve({}, 3) == []
