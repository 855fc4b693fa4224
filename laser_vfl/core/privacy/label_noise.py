"""Labels that are randomised once: randomised response for classes, discrete Laplace for amounts.

Both draw with integers alone, because rounded probabilities would make the ε of a label a little
larger, or infinite. A label is one of a few levels: the place of its class, or a step between two
bounds. The noise of a person is a function of a secret, of the person and of the true level, so
that drawing again tells nothing new.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
import numpy.typing as npt

from laser_vfl.core.privacy.keystream import KEY_BYTES, subkey

Levels = npt.NDArray[np.int64]

BITS = 8 * KEY_BYTES
"""Of the one random number that a label is randomised with."""

NUM_STEPS = 1000
"""An amount is rounded to one of so many equal steps between its bounds."""

BOUNDS_APART = math.sqrt(12)
"""How far the bounds of an amount are apart in targets: amounts spread evenly have deviation 1."""

_WHOLE = 1 << BITS
_DIGITS = 200
"""Of the decimal arithmetic; the bits above have 78."""

_SLACK = Decimal(2) ** -100
"""By what share the ε of Laplace noise is made smaller, far more than rounding could add to it."""


@dataclass(frozen=True)
class RandomisedResponse:
    """Keeps a class with probability e^ε / (e^ε + C - 1), and else takes another one at random."""

    epsilon: float
    num_levels: int
    """C, how many classes there are."""

    @property
    def keep(self) -> float:
        """How likely a class is kept."""
        return 1 / (1 + (self.num_levels - 1) * math.exp(-self.epsilon))

    @property
    def lie(self) -> float:
        """How likely each single other class is drawn."""
        return (1 - self.keep) / (self.num_levels - 1)

    def drawn(self, level: int, number: int) -> int:
        """Return what is told of a true level, given a random number of `BITS` bits."""
        other = number // self._lie
        if other >= self.num_levels - 1:
            return level
        return other + (other >= level)

    @cached_property
    def _lie(self) -> int:
        """How many of the numbers stand for each other class.

        It is rounded up, so that a class is told at most e^ε times as often if it is the true one.
        """
        with localcontext() as context:
            context.prec = _DIGITS
            share = _WHOLE / (Decimal(self.epsilon).exp() + self.num_levels - 1)
        return int(share) + 2


@dataclass(frozen=True)
class DiscreteLaplace:
    """Adds discrete Laplace noise of scale 1/ε, the bounds being 1 apart, and clips to the bounds.

    Levels are steps between the bounds. That it clips costs a learner nothing that compares a label
    with a prediction within the bounds: it sees on which side the label is all the same.
    """

    epsilon: float

    @property
    def num_levels(self) -> int:
        """How many levels there are."""
        return NUM_STEPS + 1

    def drawn(self, level: int, number: int) -> int:
        """Return what is told of a true level, given a random number of `BITS` bits."""
        # Small numbers are noise below zero, large ones noise above.
        is_below = number < _WHOLE // 2
        tail = number if is_below else _WHOLE - 1 - number
        steps = bisect_left(self._tails, -tail)
        return max(level - steps, 0) if is_below else min(level + steps, NUM_STEPS)

    @cached_property
    def _tails(self) -> list[int]:
        """For each number of steps: how many numbers make at least so many, times -1, rising."""
        with localcontext() as context:
            context.prec = _DIGITS
            ratio = (-Decimal(self.epsilon) * (1 - _SLACK) / NUM_STEPS).exp()
            tail = _WHOLE * ratio / (1 + ratio)
            tails = []
            for _ in range(NUM_STEPS):
                tails.append(-int(tail))
                tail *= ratio
        return tails


LabelNoise = RandomisedResponse | DiscreteLaplace


def randomised(
    noise: LabelNoise, secret: bytes, meaning: bytes, names: Sequence[str], levels: Levels
) -> Levels:
    """Return what is told of people's true levels.

    `secret` is for labels alone, and known to nobody else. `meaning` says what the levels are. With
    another meaning or another ε the draws are independent: if they were not, two releases of one
    label together could tell it for certain.
    """
    if not secret:
        raise ValueError("noise without a secret can be undone")
    key = subkey(secret, b"label noise", meaning, repr(noise).encode())
    drawn = [
        noise.drawn(level, int.from_bytes(subkey(key, b"label", name.encode(), b"%d" % level)))
        for name, level in zip(names, levels.tolist(), strict=True)
    ]
    return np.array(drawn, dtype=np.int64)
