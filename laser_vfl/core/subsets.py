"""Sets of blocks as bit masks: bit i stands for client i of the roster."""

from collections.abc import Iterable, Iterator, Sequence

MAX_CLIENTS = 64


def mask_of(clients: Iterable[int]) -> int:
    """Return the mask of these clients."""
    mask = 0
    for client in clients:
        mask |= 1 << client
    return mask


def clients_in(mask: int) -> tuple[int, ...]:
    """Return the clients of a mask in roster order."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def has(mask: int, client: int) -> bool:
    """Tell whether a client is in the mask."""
    return bool(mask >> client & 1)


def subsets_containing(client: int, observed: int) -> Iterator[int]:
    """Yield the subsets of `observed` with `client`: fewest blocks first, then roster order."""
    others = [i for i in clients_in(observed) if i != client]
    masks = (
        mask_of(others[j] for j in range(len(others)) if choice >> j & 1) | 1 << client
        for choice in range(1 << len(others))
    )
    return iter(sorted(masks, key=lambda mask: (mask.bit_count(), clients_in(mask))))


def subset_name(mask: int, roster: Sequence[str]) -> str:
    """Return the names of a subset's clients in roster order, as people read them."""
    return ",".join(roster[i] for i in clients_in(mask))
