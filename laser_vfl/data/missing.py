"""Which blocks of which samples are there: drawn at random, the same ones for the same seed.

A block of a sample is missing when a uniform number falls below the block's probability. The
numbers of a block are a Philox stream of its own, keyed by the seed, with the table and the block
in the counter (`core/randomness.py`): word i, without its lowest 11 bits, over 2⁵³ is that of
sample i. So training and test tables are independent, another number of clients leaves the blocks
before it as they were, and a block that is missing at p = 0.1 is missing at p = 0.5 as well.
"""

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.randomness import RandomStream, random_permutation, random_words

PMiss = float | Literal["beta"]
TableName = Literal["train", "test"]
TABLES: Final[tuple[TableName, ...]] = ("train", "test")


def observed_blocks(
    num_samples: int,
    num_clients: int,
    p_miss: PMiss,
    *,
    seed: int,
    table: TableName,
    together: int = 1,
) -> npt.NDArray[np.bool_]:
    """Return which blocks are there, (samples, clients); a sample may have no block at all.

    `p_miss` is the probability that a block is missing, or "beta": then each block has one of its
    own, drawn from Beta(2, 2). `together` samples, chosen by chance, miss the same blocks.
    """
    num_drawn = -(-num_samples // together)
    observed = np.stack(
        [
            _uniform(num_drawn, RandomStream.MISSING_BLOCKS, seed, table, k) >= p
            for k, p in enumerate(block_probabilities(num_clients, p_miss, seed=seed, table=table))
        ],
        axis=1,
    )
    if together == 1:
        return observed
    place = random_permutation(
        num_samples, seed=seed, stream=RandomStream.MISSING_TOGETHER, counter=TABLES.index(table)
    )
    return observed[place // together]


def block_probabilities(
    num_clients: int, p_miss: PMiss, *, seed: int, table: TableName
) -> list[float]:
    """Return the probability of each block to be missing."""
    if num_clients < 1:
        raise ConfigError(f"there are {num_clients} clients", hint="use at least one")
    if not 0 <= seed < 1 << 64:
        raise ConfigError(f"the seed is {seed}", hint="use an integer from 0 to 2**64 - 1")
    if p_miss == "beta":
        # The middle one of three uniform numbers has the distribution Beta(2, 2).
        return [
            float(np.median(_uniform(3, RandomStream.MISSING_PROBABILITIES, seed, table, k)))
            for k in range(num_clients)
        ]
    if isinstance(p_miss, str) or not 0 <= p_miss < 1:
        raise ConfigError(
            f"a block cannot be missing with probability {p_miss}",
            hint="use a number from 0 to 1, without 1, or beta",
        )
    return [float(p_miss)] * num_clients


def _uniform(
    num: int, stream: RandomStream, seed: int, table: TableName, client: int
) -> npt.NDArray[np.float64]:
    words = random_words(num, seed=seed, stream=stream, counter=TABLES.index(table), client=client)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
