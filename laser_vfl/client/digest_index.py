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

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, digests: Digests) -> Positions:
        """Return where each of these digests stands, -1 if nowhere."""
        if not len(self._keys):
            return np.full(len(digests), -1, dtype=np.int64)
        keys = _keys(digests)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._order[places], -1)


def _keys(digests: Digests) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").reshape(-1)
