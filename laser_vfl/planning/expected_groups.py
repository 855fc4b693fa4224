"""Which samples a run may expect: from probabilities, an alignment or the last run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import ConfigError, DataError, NotReady
from laser_vfl.core.subsets import mask_of

SEED = 8
MAX_UNHELD = 0.99
"""The highest probability that a drawn sample is held by nobody."""
MAX_DRAWN = 1_000_000
"""At most this many samples are drawn; larger numbers are scaled up from them."""


def drawn_groups(num_samples: int, missing: Sequence[float]) -> tuple[Group, ...]:
    """Draw who holds each sample; each block is missing independently, with its own probability.

    A sample that nobody holds is drawn again.
    """
    if not num_samples:
        return ()
    if np.prod(missing) > MAX_UNHELD:
        raise ConfigError(
            "--p-missing: hardly any sample would have a block", hint="give smaller chances"
        )
    generator = np.random.Generator(np.random.Philox(SEED))
    bits = np.uint64(1) << np.arange(len(missing), dtype=np.uint64)
    held = np.empty(0, dtype=np.uint64)
    num_drawn = min(num_samples, MAX_DRAWN)
    while len(held) < num_drawn:
        present = generator.random((num_drawn, len(missing))) >= np.asarray(missing)
        masks = present @ bits
        held = np.concatenate([held, masks[masks > 0]])
    masks, counts = np.unique(held[:num_drawn], return_counts=True)
    return _resized(masks.tolist(), counts.tolist(), num_samples)


def groups_of_overlaps(path: Path, roster: Sequence[str], table: str) -> tuple[Group, ...]:
    """Return the groups of a table in the output of `align --dry-run --format json`."""
    try:
        found = json.loads(path.read_text("utf-8"))
        patterns = found["tables"].get(table, {"patterns": []})["patterns"]
        sizes = {_mask(one["blocks"], roster): int(one["num_samples"]) for one in patterns}
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror})", where=str(path)) from None
    except (OverflowError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DataError(
            "these are no overlaps of this federation",
            where=str(path),
            hint="write them with `laser-vfl align --config CLIENT.yaml --dry-run --format json`",
        ) from None
    if any(size < 1 for size in sizes.values()) or 0 in sizes:
        raise DataError("a pattern has no samples, or no blocks", where=str(path))
    return tuple(Group(mask, sizes[mask]) for mask in sorted(sizes))


def last_run_samples(
    status: Mapping[str, Any], roster: Sequence[str]
) -> tuple[int, list[float], tuple[str, ...]]:
    """Read the samples of a coordinator's last run from its status.

    Returns how many there were, which share of them each client did not hold, and who has labels.
    """
    num_samples = status["num_samples"]
    if not num_samples:
        raise NotReady(
            "the coordinator has not aligned any samples yet",
            hint="use --overlaps with the JSON of `laser-vfl align --dry-run`, or --samples",
        )
    clients = {client["client"]: client for client in status["clients"]}
    held = [clients[name]["num_samples"] or 0 for name in roster]
    labels = tuple(name for name in roster if clients[name]["has_head"])
    missing = [min(1 - one / num_samples, 1 - 1e-9) for one in held]
    return num_samples, missing, labels or tuple(roster)


def _mask(blocks: Any, roster: Sequence[str]) -> int:
    return mask_of(roster.index(name) for name in blocks)


def _resized(masks: list[int], counts: list[int], num_samples: int) -> tuple[Group, ...]:
    """Scale the patterns to `num_samples`; the largest ones get what rounding leaves over."""
    num_drawn = sum(counts)
    sizes = [count * num_samples // num_drawn for count in counts]
    left = num_samples - sum(sizes)
    for index in sorted(range(len(sizes)), key=lambda i: -counts[i])[:left]:
        sizes[index] += 1
    return tuple(Group(mask, size) for mask, size in zip(masks, sizes, strict=True) if size)
