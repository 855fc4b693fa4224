"""Group samples by the exact set of clients that hold them, from blinded ids alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import DataError
from laser_vfl.core.subsets import MAX_CLIENTS, clients_in, has

DIGEST_BYTES = 32

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """All samples that exactly the clients in `observed` hold."""

    observed: int
    size: int


@dataclass(frozen=True)
class ClientAlignment:
    """What one client is told of a table: all group sizes, and its own rows in its own groups.

    `rows[g][place]` is the row of this client's table that stands at `place` of group `g`.
    """

    groups: tuple[Group, ...]
    rows: Mapping[int, Rows]

    @property
    def num_rows(self) -> int:
        """How many rows of this client take part."""
        return sum(len(rows) for rows in self.rows.values())


def align(digests_by_client: Sequence[npt.NDArray[np.uint8] | None]) -> list[ClientAlignment]:
    """Align tables of (rows, 32) blinded ids, one per client of the roster, None if absent.

    Groups stand in the order of their masks and samples within a group in the order of their
    digests, so the result does not depend on anybody's row order.
    """
    if len(digests_by_client) > MAX_CLIENTS:
        raise DataError(f"a federation has at most {MAX_CLIENTS} clients")
    present = [(k, d) for k, d in enumerate(digests_by_client) if d is not None and len(d)]
    if not present:
        return [ClientAlignment((), {}) for _ in digests_by_client]

    holder_of = np.concatenate([np.full(len(d), k, dtype=np.uint8) for k, d in present])
    row_of = np.concatenate([np.arange(len(d), dtype=np.int64) for _, d in present])
    words = np.concatenate([np.ascontiguousarray(d).view(">u8") for _, d in present])
    order = np.lexsort(
        tuple(words[:, i].astype(np.uint64) for i in reversed(range(words.shape[1])))
    )
    words, holder_of, row_of = words[order], holder_of[order], row_of[order]

    first = np.ones(len(words), dtype=bool)
    first[1:] = (words[1:] != words[:-1]).any(axis=1)
    sample_of = np.cumsum(first) - 1
    mask_of_sample = np.zeros(sample_of[-1] + 1, dtype=np.uint64)
    np.bitwise_or.at(mask_of_sample, sample_of, np.uint64(1) << holder_of.astype(np.uint64))

    masks, group_of_sample, sizes = np.unique(
        mask_of_sample, return_inverse=True, return_counts=True
    )
    groups = tuple(Group(int(mask), int(size)) for mask, size in zip(masks, sizes, strict=True))
    group_of = group_of_sample[sample_of]

    def told_to(client: int) -> ClientAlignment:
        mine = np.flatnonzero(holder_of == client)
        my_rows = row_of[mine[np.argsort(group_of[mine], kind="stable")]]
        my_groups = [g for g, group in enumerate(groups) if has(group.observed, client)]
        ends = np.cumsum([groups[g].size for g in my_groups], dtype=np.int64)
        return ClientAlignment(groups, dict(zip(my_groups, np.split(my_rows, ends), strict=False)))

    return [told_to(client) for client in range(len(digests_by_client))]


def check_distinct(digests: npt.NDArray[np.uint8]) -> None:
    """Refuse a table that has the same blinded id twice."""
    num_repeated = len(digests) - len(np.unique(digests.view(f"S{DIGEST_BYTES}")))
    if num_repeated:
        raise DataError(
            f"{num_repeated} blinded ids were submitted twice", hint="send each id once"
        )


def num_common(first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> int:
    """How many blinded ids two tables have in common."""
    kind = f"S{DIGEST_BYTES}"
    return len(np.intersect1d(first.view(kind), second.view(kind), assume_unique=True))


def num_shared(alignment: ClientAlignment) -> int:
    """How many of a client's rows some other client holds too."""
    return sum(
        group.size
        for g, group in enumerate(alignment.groups)
        if g in alignment.rows and len(clients_in(group.observed)) > 1
    )
