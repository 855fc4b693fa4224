"""How many samples have which block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.subsets import has


@dataclass(frozen=True)
class SampleCounts:
    """How many training samples a run has, and how many of them have each client's block."""

    total: int = 0
    by_client: Mapping[str, int] = field(default_factory=dict)


def count_samples(roster: Sequence[str], alignment: ClientAlignment) -> SampleCounts:
    """Count by any member's training alignment: the groups in it are the same for all."""
    groups = alignment.groups
    return SampleCounts(
        sum(group.size for group in groups),
        {
            name: sum(group.size for group in groups if has(group.observed, k))
            for k, name in enumerate(roster)
        },
    )
