"""Random words that any party can recompute alone: Philox, keyed by seed, stream, time and client.

Only the raw words of the bit generator are used. Their stream is fixed by the algorithm, while the
distributions that numpy builds on top of it may change between versions, and organisations do
not upgrade on the same day.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


class RandomStream(IntEnum):
    """What a stream of random words is for; streams of different purposes never meet."""

    SCHEDULE = 1
    TASKS = 2
    INITIAL_PARAMETERS = 3
    REPRESENTATION_NOISE = 4
    FUSION_NOISE = 5
    DROPPED_PARTIES = 6
    GUESSES = 7
    ROUNDED_REPRESENTATIONS = 8
    ROUNDED_GRADIENTS = 9
    ROUNDED_EVALUATION = 10
    BLOCK_ORDERS = 16
    SPLIT = 20
    MISSING_BLOCKS = 21
    MISSING_PROBABILITIES = 22
    SHIFTS = 23
    MISSING_TOGETHER = 24
    FEWER_SAMPLES = 25


def random_words(
    num: int, *, seed: int, stream: RandomStream, counter: int = 0, client: int = 0
) -> Words:
    """Return `num` words of a stream; its counter is a step or an epoch."""
    philox = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, 0, counter, client], dtype=np.uint64),
    )
    return philox.random_raw(num)


def random_permutation(
    num: int, *, seed: int, stream: RandomStream, counter: int
) -> npt.NDArray[np.intp]:
    """Return a uniformly random order of `num` items."""
    words = random_words(num, seed=seed, stream=stream, counter=counter)
    return np.argsort(words, kind="stable")


def torch_seed(*, seed: int, stream: RandomStream, counter: int = 0, client: int = 0) -> int:
    """Return a seed for torch's own generator, for layers that draw random numbers themselves."""
    return int(random_words(1, seed=seed, stream=stream, counter=counter, client=client)[0] >> 1)
