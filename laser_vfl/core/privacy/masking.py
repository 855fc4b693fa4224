"""Gradients of which a client learns the sum only: fixed point, and masks that cancel in the sum.

Integers add up to the same whatever the order, and a mask that one head adds and another subtracts
is gone to the last bit. With floating point neither would be so.
"""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.privacy.keystream import keystream, subkey
from laser_vfl.core.schedule.step_plan import Plan, Share
from laser_vfl.core.subsets import has

Integers = npt.NDArray[np.int64]

_ONE = 2.0**32
"""What 1.0 is as an integer."""

_LIMIT = 2.0**24
"""64 clients' entries below this add up to less than 2^62, so a sum never wraps around."""

_PURPOSE = b"gradient mask"


def quantised(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient in fixed point; one that has grown beyond all bounds ends training."""
    if not bool((gradient.abs() < _LIMIT).all()):
        raise TrainingStopped(
            "a gradient is too large to be masked, or not finite",
            hint="lower optimizer.lr here or at the other clients, and look at the features' scale",
        )
    return (gradient.double() * _ONE).round_().long()


def dequantised(total: torch.Tensor) -> torch.Tensor:
    """Return what a sum of gradients in fixed point is."""
    return (total.double() / _ONE).float()


def mask_for(
    plan: Plan, target: Share, key_of: Callable[[int], bytes], *, generation: int, width: int
) -> Integers:
    """Return what a head adds to the gradient that it sends to `target`, (shared rows, width).

    With every other head it shares a mask over the rows that both of them and the target hold. Both
    walk through them in the same order. The first in the roster adds it, the other one subtracts.
    """
    observed = plan.observed_b if target.positions is None else plan.observed_b[target.positions]
    mask = np.zeros((len(observed), width), dtype=np.int64)
    moment = b"".join(n.to_bytes(8, "little") for n in (generation, plan.step, target.peer))
    for other in plan.head_peers:
        rows = np.flatnonzero(observed >> np.uint64(other.peer) & np.uint64(1))
        if other.peer == target.peer or not len(rows):
            continue
        key = subkey(key_of(other.peer), _PURPOSE, moment)
        words = np.frombuffer(keystream(key, 8 * len(rows) * width), dtype="<i8")
        change = words.reshape(len(rows), width)
        if plan.client < other.peer:
            mask[rows] += change
        else:
            mask[rows] -= change
    return mask


def num_unmasked(
    groups: Iterable[Group], client: int, heads: int, participants: int
) -> tuple[int, int]:
    """Return for how many of its shared samples a head's gradient reaches another head unmasked.

    There it would take a third head to mask it with, and one that takes part. The second value is
    how many samples this head shares with any of the participants.
    """
    num_unmasked = num_shared = 0
    for group in groups:
        peers = group.observed & participants & ~(1 << client)
        if not has(group.observed, client) or not peers:
            continue
        num_shared += group.size
        if (peers & heads).bit_count() < 2:
            num_unmasked += group.size
    return num_unmasked, num_shared
