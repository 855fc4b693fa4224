"""Which points of a list have come, in 12 bytes each, to find those that come twice."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from laser_vfl.data import POINT_BYTES

POINT = np.dtype([("first", "<u8"), ("second", "<u4"), ("rest", f"V{POINT_BYTES - 12}")])
"""Two different points agree in the first two fields by chance once in 2^96."""

BLOCK = 1 << 14
"""So many points are kept together; memory grows with what comes, not with what is promised."""


class PointsSeen:
    """The points of one list so far. A scalar maps points one to one, so any client can tell."""

    def __init__(self) -> None:
        self.num_points = 0
        self._first: list[npt.NDArray[np.uint64]] = []
        self._second: list[npt.NDArray[np.uint32]] = []

    def add(self, points: bytes) -> None:
        """Take note of some points."""
        rows = np.frombuffer(points, dtype=POINT)
        while len(rows):
            start = self.num_points % BLOCK
            if not start:
                self._first.append(np.empty(BLOCK, dtype=np.uint64))
                self._second.append(np.empty(BLOCK, dtype=np.uint32))
            some, rows = rows[: BLOCK - start], rows[BLOCK - start :]
            self._first[-1][start : start + len(some)] = some["first"]
            self._second[-1][start : start + len(some)] = some["second"]
            self.num_points += len(some)

    def num_repeated(self) -> int:
        """Return how many of the points have come before."""
        if not self._first:
            return 0
        first = np.concatenate(self._first)[: self.num_points]
        return _num_repeated(first, lambda: np.concatenate(self._second)[: self.num_points])


def num_repeated(points: bytes | bytearray) -> int:
    """Return how many points of a whole list have come before."""
    rows = np.frombuffer(points, dtype=POINT)
    return _num_repeated(rows["first"], lambda: rows["second"])


def _num_repeated(
    first: npt.NDArray[np.uint64], second_of: Callable[[], npt.NDArray[np.uint32]]
) -> int:
    ordered = np.sort(first)
    if not (ordered[1:] == ordered[:-1]).any():
        return 0
    del ordered
    second = second_of()
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    return int(((first[1:] == first[:-1]) & (second[1:] == second[:-1])).sum())
