"""Large pieces of memory go back to the system as soon as they are free, for a while.

The C library keeps them for later, which suits training, where every step needs the same again. An
alignment needs each of its lists once.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, as the GNU C library numbers them."""

RETURNED_BYTES = 1 << 18
KEPT_BYTES = 1 << 25
"""What the GNU C library comes to by itself when large pieces are freed again and again."""


@contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Give back what is freed; where the C library cannot be told, nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, RETURNED_BYTES)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)
