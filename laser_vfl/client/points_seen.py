"""Which points of a list have come, in 16 bytes each, to find those that come twice."""

import numpy as np

from laser_vfl.data import POINT_BYTES

MAX_PARTS = 4096

KEPT_BYTES = 16
"""Two different points agree in so many bytes by chance once in 2^128."""


class PointsSeen:
    """The points of one list so far. A scalar maps points one to one, so any client can tell."""

    def __init__(self, num_expected: int) -> None:
        self.num_points = 0
        self._num_expected = num_expected
        self._parts: list[np.ndarray[tuple[int, int], np.dtype[np.uint64]]] = []

    def have_room_for(self, points: bytes) -> bool:
        """Whether these are not more than expected."""
        return self.num_points + len(points) // POINT_BYTES <= self._num_expected

    def add(self, points: bytes) -> None:
        """Take note of some points."""
        rows = np.frombuffer(points, dtype=np.uint64).reshape(-1, POINT_BYTES // 8)
        self.num_points += len(rows)
        self._parts.append(rows[:, : KEPT_BYTES // 8].copy())
        if len(self._parts) > MAX_PARTS:  # small ones cost more than what they hold
            self._parts = [np.concatenate(self._parts)]

    def num_repeated(self) -> int:
        """Return how many of the points have come before."""
        if not self._parts:
            return 0
        seen = np.concatenate(self._parts)
        self._parts = [seen]
        first = np.sort(seen[:, 0])
        if not (first[1:] == first[:-1]).any():
            return 0
        seen = seen[np.lexsort((seen[:, 1], seen[:, 0]))]
        return int((seen[1:] == seen[:-1]).all(axis=1).sum())
