"""Group samples by the exact set of clients that hold them, from blinded ids alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.core.subsets import MAX_CLIENTS, clients_in, has

DIGEST_BYTES = 32

BYTES_PER_ENTRY = 64
"""The most memory that grouping takes for each entry of all lists, the list included."""

Rows = npt.NDArray[np.int64]
Entries = npt.NDArray[Any]
"""Entries of all lists, counted through, or places in an order of them, in the smaller type."""
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
    # They may be many millions, so nothing is held for longer than it is needed.
    order, is_first = _sorted_entries(_Digests([d for d in digests_by_client if d is not None]))
    index = order.dtype
    starts = np.flatnonzero(is_first)
    sample_of = np.empty(len(order), dtype=index)
    sample_of[order] = np.cumsum(is_first, dtype=index) - 1
    del is_first
    bit_of = np.array([1 << k for k in range(len(sizes))], dtype=_mask_type(len(sizes)))
    owner_of = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    mask_of = np.bitwise_or.reduceat(bit_of[owner_of[order]], starts)
    lead_of = np.minimum.reduceat(order, starts)
    del order, owner_of, starts

    lead_of.sort()
    listed = sample_of[lead_of]
    del lead_of
    ranked = listed[np.argsort(mask_of[listed], kind="stable")]
    rank_of = np.empty(len(ranked), dtype=index)
    rank_of[ranked] = np.arange(len(ranked), dtype=index)
    del listed, ranked
    masks, counts = np.unique(mask_of, return_counts=True)
    groups = tuple(Group(int(mask), int(size)) for mask, size in zip(masks, counts, strict=True))

    def alignment_of(client: int, samples: Entries) -> ClientAlignment:
        positions = np.argsort(rank_of[samples])
        mine = [g for g, group in enumerate(groups) if has(group.observed, client)]
        ends = np.cumsum([groups[g].size for g in mine], dtype=np.int64)
        return ClientAlignment(groups, dict(zip(mine, np.split(positions, ends), strict=False)))

    lists = np.split(sample_of, np.cumsum(sizes)[:-1])
    return [alignment_of(client, samples) for client, samples in enumerate(lists)]


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
    num_repeated = len(digests) - _num_distinct([digests])
    if num_repeated:
        raise ContractError(f"{num_repeated} blinded ids were submitted twice")


def num_common(first: Digests, second: Digests) -> int:
    """How many blinded ids two lists, each without repeats, have in common."""
    return len(first) + len(second) - _num_distinct([first, second])


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


class _Digests:
    """All lists one after the other, read a word at a time; nothing else is copied."""

    def __init__(self, lists: Sequence[Digests]) -> None:
        self._words = [np.ascontiguousarray(d).view(np.uint64) for d in lists]
        self._ends = np.cumsum([len(words) for words in self._words], dtype=np.int64)

    def leading(self) -> Words:
        """Return the first word of every entry."""
        return np.concatenate([np.empty(0, np.uint64), *(words[:, 0] for words in self._words)])

    def word(self, number: int, entries: Entries) -> Words:
        """Return one of the words of some entries."""
        found = np.empty(len(entries), np.uint64)
        owner_of = np.searchsorted(self._ends, entries, side="right")
        for owner, words in enumerate(self._words):
            mine = owner_of == owner
            found[mine] = words[entries[mine] - (self._ends[owner] - len(words)), number]
        return found

    def differ(self, order: Entries, at: Entries) -> npt.NDArray[np.bool_]:
        """Whether entries, at these places of an order, differ from the ones before them.

        The two share their first word.
        """
        differ = np.zeros(len(at), dtype=bool)
        for start in range(0, len(at), _PIECE):
            piece = slice(start, start + _PIECE)
            before, after = order[at[piece] - 1], order[at[piece]]
            for number in (1, 2, 3):
                differ[piece] |= self.word(number, before) != self.word(number, after)
        return differ


_PIECE = 1 << 18
"""So many entries are compared at a time."""


def _num_distinct(lists: Sequence[Digests]) -> int:
    digests = _Digests(lists)
    leading = digests.leading()
    leading.sort()
    if not (leading[1:] == leading[:-1]).any():
        return len(leading)
    del leading
    return int(np.count_nonzero(_sorted_entries(digests)[1]))


def _sorted_entries(digests: _Digests) -> tuple[Entries, npt.NDArray[np.bool_]]:
    """Return an order that puts equal digests side by side, and where in it each first one is.

    The first word decides alone, unless two different digests share it, which takes bad luck or
    somebody who wants it. Those alone are then sorted by all of their words.
    """
    leading = digests.leading()
    index = _index_type(len(leading))
    order = np.argsort(leading).astype(index)
    is_first = np.ones(len(order), dtype=bool)
    for at in range(1, len(order), _PIECE):
        behind, ahead = order[at - 1 : at - 1 + _PIECE], order[at : at + _PIECE]
        is_first[at : at + _PIECE] = leading[ahead] != leading[behind[: len(ahead)]]
    del leading
    same = np.flatnonzero(~is_first).astype(index)
    differ = digests.differ(order, same)
    if not differ.any():
        return order, is_first
    run_of = np.cumsum(is_first, dtype=index)
    is_mixed = np.zeros(run_of[-1] + 1, dtype=bool)
    is_mixed[run_of[same[differ]]] = True
    mixed = np.flatnonzero(is_mixed[run_of]).astype(index)
    entries, runs = order[mixed], run_of[mixed]
    del run_of
    words = [digests.word(number, entries) for number in (3, 2, 1)]
    order[mixed] = entries[np.lexsort((*words, runs))]
    del words, entries, runs, mixed
    is_first[same] = digests.differ(order, same)
    return order, is_first


def _index_type(num_entries: int) -> npt.DTypeLike:
    """Return the smaller type, if it can count so many."""
    return np.int32 if num_entries < 2**31 else np.int64


def _mask_type(num_clients: int) -> npt.DTypeLike:
    """Return the smallest type that has a bit for each client."""
    types = (np.uint8, np.uint16, np.uint32, np.uint64)
    return next(kind for kind in types if num_clients <= 8 * np.dtype(kind).itemsize)


def _full_order(words: Words) -> Rows:
    return np.lexsort(tuple(words[:, i] for i in reversed(range(words.shape[1]))))
