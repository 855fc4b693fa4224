"""Finds digests among many: a sorted copy, and where each stood."""

import numpy as np
import numpy.typing as npt

from laser_vfl.core.alignment import DIGEST_BYTES, listing_order

Digests = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


class DigestIndex:
    """An index of digests (n, 32). Of equal ones the first is found."""

    def __init__(self, digests: Digests) -> None:
        self._order = listing_order(digests)
        self._keys = _keys(digests)[self._order]
        self._starts = _starts(digests)[self._order]
        """The first bytes of each, which are soon searched."""

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, digests: Digests) -> Positions:
        """Return where each of these digests stands, -1 if nowhere."""
        if not len(self._keys):
            return np.full(len(digests), -1, dtype=np.int64)
        keys, last = _keys(digests), len(self._keys) - 1
        starts = _starts(digests)
        places = np.minimum(np.searchsorted(self._starts, starts), last)
        is_found = self._keys[places] == keys
        # Digests may begin alike and go on differently; then all of their bytes are searched for.
        alike = ~is_found & (self._starts[places] == starts)
        if alike.any():
            places[alike] = np.minimum(np.searchsorted(self._keys, keys[alike]), last)
            is_found = self._keys[places] == keys
        return np.where(is_found, self._order[places], -1)


def _starts(digests: Digests) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes of each digest as a number, which is in the same order."""
    return np.ascontiguousarray(digests[:, :8]).view(">u8").reshape(-1).astype(np.uint64)


def _keys(digests: Digests) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").reshape(-1)
