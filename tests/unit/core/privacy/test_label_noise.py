"""Randomised labels: the ε holds to the last integer, and nothing but the secret decides."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from laser_vfl.core.privacy.label_noise import (
    BITS,
    NUM_STEPS,
    DiscreteLaplace,
    RandomisedResponse,
    randomised,
)

SECRET = bytes(range(32))
WHOLE = 1 << BITS
EPSILONS = [0.01, 0.1, 1.0, 2.0, 3.0, 5.0, 20.0]
PEOPLE = [f"person-{i}" for i in range(40_000)]


def at_most(epsilon):
    """A number a little below e^ε: its series, cut off."""
    total = term = Fraction(1)
    for k in range(1, 200):
        term *= Fraction(epsilon) / k
        total += term
    return total


@pytest.mark.parametrize("num_classes", [2, 3, 10, 10_000])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_of_two_classes_is_never_above_the_bound(epsilon, num_classes):
    noise = RandomisedResponse(epsilon, num_classes)
    lie = noise._lie
    kept = WHOLE - (num_classes - 1) * lie
    assert 0 < lie < kept
    assert Fraction(kept, lie) <= at_most(epsilon)
    assert kept / lie == pytest.approx(np.exp(epsilon), rel=1e-12), "it could be less noisy"
    assert kept / WHOLE == pytest.approx(noise.keep, rel=1e-12)
    assert lie / WHOLE == pytest.approx(noise.lie, rel=1e-9)


def test_every_other_class_has_the_same_share_of_the_numbers():
    noise = RandomisedResponse(1.0, 4)
    lie = noise._lie
    for level in range(4):
        others = [one for one in range(4) if one != level]
        for place, other in enumerate(others):
            assert noise.drawn(level, place * lie) == other
            assert noise.drawn(level, (place + 1) * lie - 1) == other
        assert noise.drawn(level, 3 * lie) == level
        assert noise.drawn(level, WHOLE - 1) == level


def shares(noise, level):
    """How many numbers make each level of a true one, by the steps that they make."""
    tails = [-tail for tail in noise._tails]
    of_steps = [a - b for a, b in zip(tails, [*tails[1:], 0], strict=True)]
    counts = [0] * noise.num_levels
    counts[level] = WHOLE - 2 * tails[0]
    for steps, num in enumerate(of_steps, start=1):
        counts[max(level - steps, 0)] += num
        counts[min(level + steps, NUM_STEPS)] += num
    return counts


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_of_two_amounts_is_never_above_the_bound(epsilon):
    noise = DiscreteLaplace(epsilon)
    most, near = at_most(epsilon), at_most(Fraction(epsilon) / NUM_STEPS)
    by_level = {level: shares(noise, level) for level in (0, 1, 2, 499, 500, 501, 999, 1000)}
    for counts in by_level.values():
        assert sum(counts) == WHOLE
        assert min(counts) > 0
    ends = list(zip(by_level[0], by_level[1000], strict=True))
    assert max(max(Fraction(a, b), Fraction(b, a)) for a, b in ends) <= most
    assert ends[0][0] / ends[0][1] == pytest.approx(np.exp(epsilon), rel=1e-9)
    for one, other in ((0, 1), (1, 2), (499, 500), (500, 501), (999, 1000)):
        pairs = zip(by_level[one], by_level[other], strict=True)
        assert max(max(Fraction(a, b), Fraction(b, a)) for a, b in pairs) <= near


def test_a_number_makes_the_steps_that_it_is_counted_for():
    noise = DiscreteLaplace(2.0)
    tails = [-tail for tail in noise._tails]
    assert len(tails) == NUM_STEPS
    assert noise.drawn(500, tails[0]) == noise.drawn(500, WHOLE - 1 - tails[0]) == 500
    for steps in (1, 2, 250, 499):
        last = tails[steps - 1] - 1
        assert noise.drawn(500, last) == 500 - steps
        assert noise.drawn(500, WHOLE - 1 - last) == 500 + steps
        assert noise.drawn(500, tails[steps]) == 500 - steps
    for number, end in ((0, 0), (WHOLE - 1, NUM_STEPS)):
        assert {noise.drawn(level, number) for level in (0, 3, NUM_STEPS)} == {end}


def test_classes_are_kept_and_mistaken_as_often_as_they_should():
    noise = RandomisedResponse(2.0, 5)
    levels = np.arange(len(PEOPLE)) % 5
    told = randomised(noise, SECRET, b"kind", PEOPLE, levels)
    kept = (told == levels).mean()
    assert abs(kept - noise.keep) < 5 * np.sqrt(noise.keep * noise.lie / len(PEOPLE)) + 0.005
    shifts = Counter(((told - levels) % 5).tolist())
    assert all(abs(shifts[k] / len(PEOPLE) - noise.lie) < 0.007 for k in (1, 2, 3, 4))


@pytest.mark.parametrize("level", [0, 300, 1000])
def test_amounts_spread_as_laplace_noise_does(level):
    noise = DiscreteLaplace(4.0)
    told = randomised(noise, SECRET, b"amount", PEOPLE, np.full(len(PEOPLE), level))
    below, above = (told < level).mean(), (told > level).mean()
    assert told.min() >= 0
    assert told.max() <= NUM_STEPS
    assert below == pytest.approx(0.5 if level else 0, abs=0.01)
    assert above == pytest.approx(0.5 if level < NUM_STEPS else 0, abs=0.01)
    if level == 300:
        assert np.quantile(told, 0.75) == pytest.approx(300 + 250 * np.log(2), abs=8)


@pytest.mark.parametrize("noise", [RandomisedResponse(1.0, 3), DiscreteLaplace(1.0)])
def test_noise_depends_on_the_person_and_the_label_and_on_nothing_else(noise):
    people, levels = PEOPLE[:600], np.arange(600) % 3
    told = randomised(noise, SECRET, b"kind", people, levels)
    order = np.random.default_rng(0).permutation(600)[:200]
    again = randomised(noise, SECRET, b"kind", [people[i] for i in order], levels[order])
    assert (again == told[order]).all()


@pytest.mark.parametrize(
    ("secret", "meaning", "noise"),
    [
        (SECRET[::-1], b"kind", RandomisedResponse(1.0, 2)),
        (SECRET, b"flag", RandomisedResponse(1.0, 2)),
        (SECRET, b"kind", RandomisedResponse(1.0000001, 2)),
    ],
)
def test_another_secret_column_or_epsilon_is_drawn_anew(secret, meaning, noise):
    """If it were not, a label that a larger ε keeps and a smaller one does not would be certain."""
    levels = np.zeros(2000, dtype=np.int64)
    lies = randomised(RandomisedResponse(1.0, 2), SECRET, b"kind", PEOPLE[:2000], levels)
    others = randomised(noise, secret, meaning, PEOPLE[:2000], levels)
    assert abs(np.corrcoef(lies, others)[0, 1]) < 0.1


def test_two_labels_of_one_person_are_drawn_independently():
    noise = RandomisedResponse(1.0, 2)
    lies = [
        randomised(noise, SECRET, b"kind", PEOPLE[:2000], np.full(2000, level)) != level
        for level in (0, 1)
    ]
    assert abs(np.corrcoef(*lies)[0, 1]) < 0.1


def test_there_is_no_noise_without_a_secret():
    with pytest.raises(ValueError, match="secret"):
        randomised(DiscreteLaplace(1.0), b"", b"kind", ["ada"], np.zeros(1, dtype=np.int64))
