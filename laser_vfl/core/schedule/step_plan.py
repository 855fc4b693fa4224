"""What one client does in one step: its rows, and which of them each peer holds too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from laser_vfl.core.alignment import ClientAlignment, Rows
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.subsets import clients_in, has

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """The rows of a step that this client and a peer both hold.

    `positions` count within this client's rows of the step; None means all of them. Both sides
    walk through the same segments, so they list the shared samples in the same order.
    """

    peer: int
    positions: Positions | None
    num_rows: int


@dataclass(frozen=True)
class Plan:
    """A step as client `client` sees it."""

    step: int
    client: int
    rows: Rows
    observed_b: npt.NDArray[np.uint64]
    blocks: tuple[int, ...]
    """Those that this client works with in this step."""
    shares: tuple[Share, ...]
    num_samples: int
    has_head: bool
    """Whether this client predicts; then it receives representations and sends gradients."""
    head_peers: tuple[Share, ...]
    """Peers with a head: they get this client's representation and answer with a gradient."""

    @property
    def learns(self) -> bool:
        """Whether anybody's loss depends on this client in this step."""
        return self.has_head or bool(self.head_peers)

    @property
    def patterns(self) -> list[int]:
        """The observed sets of the step's rows."""
        found: list[int] = np.unique(self.observed_b).tolist()
        return found


def plan_step(
    step: Step,
    alignment: ClientAlignment,
    *,
    client: int,
    participants: int,
    heads: int,
    uses: Callable[[int], int] | None = None,
) -> Plan | None:
    """Return the plan of `client`, or None when it has no row in the step or takes no part.

    `uses` tells which blocks of an observed set the client works with, its own among them, or 0
    where it leaves such samples out; without it, with all of them.
    """
    if not has(participants, client):
        return None
    segments = [
        (observed, uses(observed) if uses else observed, segment)
        for segment in step.segments
        if segment.group in alignment.rows
        for observed in (alignment.groups[segment.group].observed & participants,)
    ]
    segments = [parts for parts in segments if parts[1]]
    if not segments:
        return None
    sizes = [len(segment.places) for *_, segment in segments]
    observed_sets = [observed for observed, *_ in segments]
    masks = [used for _, used, _ in segments]
    rows = [alignment.rows[segment.group][segment.places] for *_, segment in segments]
    blocks = clients_in(reduce(or_, masks))
    shares = tuple(_share(peer, masks, sizes) for peer in blocks if peer != client)
    return Plan(
        step=step.number,
        client=client,
        rows=np.concatenate(rows),
        observed_b=np.repeat(np.array(observed_sets, dtype=np.uint64), sizes),
        blocks=blocks,
        shares=shares,
        num_samples=step.num_samples,
        has_head=has(heads, client),
        head_peers=tuple(share for share in shares if has(heads, share.peer)),
    )


def _share(peer: int, masks: Sequence[int], sizes: Sequence[int]) -> Share:
    held = [has(mask, peer) for mask in masks]
    if all(held):
        return Share(peer, None, sum(sizes))
    positions = np.flatnonzero(np.repeat(held, sizes))
    return Share(peer, positions, len(positions))
