"""Group samples by the exact set of clients that hold them, from blinded ids alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.core.subsets import MAX_CLIENTS, clients_in, has

DIGEST_BYTES = 32

Rows = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Group:
    """All samples that exactly the clients in `observed` hold."""

    observed: int
    size: int


@dataclass(frozen=True)
class ClientAlignment:
    """What one client is told of a table: all group sizes, and its own rows in its own groups.

    `rows[g][place]` says what stands at `place` of group `g`: a position in the list that this
    client submitted, or the row of its table once that is looked up.
    """

    groups: tuple[Group, ...]
    rows: Mapping[int, Rows]

    @property
    def num_rows(self) -> int:
        """How many rows of this client take part."""
        return sum(len(rows) for rows in self.rows.values())


def align(digests_by_client: Sequence[Digests | None]) -> list[ClientAlignment]:
    """Align lists of (n, 32) blinded ids, one per client of the roster, None if absent.

    A list has no id twice. Groups stand in the order of their masks, and samples within a group in
    the order of the list of the group's first client. So blinded ids that differ in every run give
    the same alignment, as long as the clients keep to the order of their lists.
    """
    if len(digests_by_client) > MAX_CLIENTS:
        raise DataError(f"a federation has at most {MAX_CLIENTS} clients")
    sizes = [0 if d is None else len(d) for d in digests_by_client]
    if not any(sizes):
        return [ClientAlignment((), {}) for _ in digests_by_client]

    # An entry is one client's digest of one sample; entries count through all lists in order.
    words = np.concatenate([_words(d) for d in digests_by_client if d is not None])
    order, starts = _sorted_runs(words)
    del words
    bits = np.uint64(1) << np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    mask_of = np.bitwise_or.reduceat(bits[order], starts)
    lead_of = np.minimum.reduceat(order, starts)
    sample_of = np.empty(len(order), dtype=np.int64)
    sample_of[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))

    listed = sample_of[np.sort(lead_of)]
    ranked = listed[np.argsort(mask_of[listed], kind="stable")]
    rank_of = np.empty(len(ranked), dtype=np.int64)
    rank_of[ranked] = np.arange(len(ranked))
    masks, counts = np.unique(mask_of, return_counts=True)
    groups = tuple(Group(int(mask), int(size)) for mask, size in zip(masks, counts, strict=True))

    def told_to(client: int, samples: Rows) -> ClientAlignment:
        positions = np.argsort(rank_of[samples])
        mine = [g for g, group in enumerate(groups) if has(group.observed, client)]
        ends = np.cumsum([groups[g].size for g in mine], dtype=np.int64)
        return ClientAlignment(groups, dict(zip(mine, np.split(positions, ends), strict=False)))

    lists = np.split(sample_of, np.cumsum(sizes)[:-1])
    return [told_to(client, samples) for client, samples in enumerate(lists)]


def align_rows(digests_by_client: Sequence[Digests | None]) -> list[ClientAlignment]:
    """Align tables of blinded ids as if each client had listed its rows by their digests.

    The result tells rows of the tables, and does not depend on anybody's row order.
    """
    orders = [None if d is None else listing_order(d) for d in digests_by_client]
    lists = [
        None if d is None or order is None else d[order]
        for d, order in zip(digests_by_client, orders, strict=True)
    ]
    return [
        told
        if order is None
        else ClientAlignment(told.groups, {g: order[at] for g, at in told.rows.items()})
        for told, order in zip(align(lists), orders, strict=True)
    ]


def listing_order(digests: Digests) -> Rows:
    """Return the rows of a table in ascending order of their digests, byte by byte."""
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64)
    order = np.argsort(words[:, 0])
    leading = words[order, 0]
    return _full_order(words) if (leading[1:] == leading[:-1]).any() else order


def check_distinct(digests: Digests) -> None:
    """Refuse a list that has the same blinded id twice."""
    num_repeated = len(digests) - _num_distinct(_words(digests))
    if num_repeated:
        raise ContractError(f"{num_repeated} blinded ids were submitted twice")


def num_common(first: Digests, second: Digests) -> int:
    """How many blinded ids two lists, each without repeats, have in common."""
    words = np.concatenate([_words(first), _words(second)])
    return len(words) - _num_distinct(words)


def num_shared(alignment: ClientAlignment) -> int:
    """How many of a client's rows some other client holds too."""
    return sum(
        group.size
        for g, group in enumerate(alignment.groups)
        if g in alignment.rows and len(clients_in(group.observed)) > 1
    )


def num_held(groups: Sequence[Group], roster: Sequence[str]) -> dict[str, int]:
    """How many samples each client of the roster holds."""
    held = dict.fromkeys(roster, 0)
    for group in groups:
        for client in clients_in(group.observed):
            held[roster[client]] += group.size
    return held


def _words(digests: Digests) -> Words:
    return np.ascontiguousarray(digests).view(np.uint64)


def _num_distinct(words: Words) -> int:
    leading = np.sort(words[:, 0])
    if not (leading[1:] == leading[:-1]).any():
        return len(words)
    return len(_sorted_runs(words)[1])


def _sorted_runs(words: Words) -> tuple[Rows, Rows]:
    """Return an order that puts equal digests side by side, and where in it each run starts.

    The first word decides alone, unless two different digests share it, which takes bad luck or
    somebody who wants it.
    """
    order = np.argsort(words[:, 0])
    leading = words[order, 0]
    same = np.flatnonzero(leading[1:] == leading[:-1])
    if any((words[order[same], i] != words[order[same + 1], i]).any() for i in (1, 2, 3)):
        order = _full_order(words)
        new = np.zeros(len(words) - 1, dtype=bool)
        for i in range(4):
            new |= words[order[1:], i] != words[order[:-1], i]
    else:
        new = leading[1:] != leading[:-1]
    return order, np.concatenate([[0], np.flatnonzero(new) + 1])


def _full_order(words: Words) -> Rows:
    return np.lexsort(tuple(words[:, i] for i in reversed(range(words.shape[1]))))
