"""What each block is worth: Shapley values of a game over blocks, and scores by missing blocks.

A game gives every subset of its players, a bit mask, a value, or None where nobody knows it. A
value that would depend on something unknown is not given at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb, sqrt

import numpy as np

from laser_vfl.core.randomness import RandomStream, random_permutation
from laser_vfl.core.subsets import clients_in, has, mask_of

MAX_ENUMERATED_BLOCKS = 10
"""Up to so many blocks all subsets are scored; above, those along random orders."""

NUM_ORDERS = 20

Game = Callable[[int], float | None]
Order = Sequence[int]


@dataclass(frozen=True)
class Worth:
    """The Shapley value of one player; None where it depends on what is not known."""

    value: float | None
    standard_error: float | None = None
    """Of the draw of orders; None when all orders count, or when there is a single one."""


@dataclass(frozen=True)
class Shapley:
    """The values of all players, and the subsets without which some cannot be told."""

    worths: dict[int, Worth]
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True)
class CurvePoint:
    """The scores of all subsets that lack so many blocks."""

    num_missing: int
    num_subsets: int
    mean: float
    lowest: float
    highest: float


def random_orders(num_clients: int, *, seed: int) -> list[tuple[int, ...]]:
    """Return the orders in which blocks are added; a function of the run's seed, the same at all.

    A sample that lacks some of the blocks leaves them out; the order of the rest stays random.
    """
    return [
        tuple(
            int(client)
            for client in random_permutation(
                num_clients, seed=seed, stream=RandomStream.BLOCK_ORDERS, counter=number
            )
        )
        for number in range(NUM_ORDERS)
    ]


def prefixes(order: Order, players: int) -> Iterator[int]:
    """Yield the subsets that grow along an order of players, from none of them to all."""
    subset = 0
    yield subset
    for player in order:
        if has(players, player):
            subset |= 1 << player
            yield subset


def exact_values(players: int, game: Game) -> Shapley:
    """Return Shapley values by enumerating all subsets: one that is unknown concerns everybody."""
    members = clients_in(players)
    values = {subset: game(subset) for subset in _subsets(members)}
    unknown = tuple(subset for subset, value in values.items() if value is None)
    if unknown:
        return Shapley(dict.fromkeys(members, Worth(None)), unknown)
    num = len(members)
    weights = [1 / (num * comb(num - 1, size)) for size in range(num)]
    known = {subset: value for subset, value in values.items() if value is not None}
    return Shapley(
        {
            player: Worth(
                sum(
                    weights[subset.bit_count()] * (known[subset | 1 << player] - value)
                    for subset, value in known.items()
                    if not has(subset, player)
                )
            )
            for player in members
        }
    )


def sampled_values(players: int, game: Game, orders: Sequence[Order]) -> Shapley:
    """Estimate Shapley values by what each player adds when it comes in each of the orders.

    Leaving out the orders that cannot be evaluated would favour the subsets that samples happen to
    have; so a player has a value only if it has one in every order.
    """
    added: dict[int, list[float | None]] = {player: [] for player in clients_in(players)}
    values: dict[int, float | None] = {}
    for order in orders:
        along = list(prefixes(order, players))
        values |= {subset: game(subset) for subset in along if subset not in values}
        for before, after in pairwise(along):
            low, high = values[before], values[after]
            gain = None if low is None or high is None else high - low
            added[(after ^ before).bit_length() - 1].append(gain)
    unknown = [subset for subset, value in values.items() if value is None]
    return Shapley(
        {player: _mean(gains) for player, gains in added.items()},
        tuple(sorted(unknown, key=in_size_order)),
    )


def curve(scores: Mapping[int, float], num_blocks: int) -> list[CurvePoint]:
    """Return how scores fall when blocks are missing, from none to all but one.

    A number of missing blocks that no subset has is left out.
    """
    points = []
    for num_missing in range(num_blocks):
        size = num_blocks - num_missing
        alike = [score for subset, score in scores.items() if subset.bit_count() == size]
        if alike:
            mean = sum(alike) / len(alike)
            points.append(CurvePoint(num_missing, len(alike), mean, min(alike), max(alike)))
    return points


def in_size_order(mask: int) -> tuple[int, tuple[int, ...]]:
    """Sort subsets by this: fewest blocks first, then roster order."""
    return mask.bit_count(), clients_in(mask)


def _subsets(members: Sequence[int]) -> list[int]:
    masks = (
        mask_of(member for place, member in enumerate(members) if choice >> place & 1)
        for choice in range(1 << len(members))
    )
    return sorted(masks, key=in_size_order)


def _mean(gains: Sequence[float | None]) -> Worth:
    known = [gain for gain in gains if gain is not None]
    if not known or len(known) < len(gains):
        return Worth(None)
    mean = sum(known) / len(known)
    if len(known) == 1:
        return Worth(mean)
    return Worth(mean, float(np.std(known, ddof=1)) / sqrt(len(known)))
