"""A token bucket: an allowed rate, with bursts. The time is an argument."""

from typing import Self


class Bucket:
    """Allows a rate, and bursts: of a second's worth, unless told. It may be left in debt."""

    def __init__(self, per_s: float, *, burst: float = 0.0) -> None:
        self._per_s = per_s
        self._most = self._level = burst or max(1.0, per_s)
        self._at = 0.0

    @classmethod
    def allowing_at(cls, per_s: float, at: float) -> Self:
        """Return a bucket that is in debt, and allows the next thing at this time."""
        bucket = cls(per_s)
        bucket._level, bucket._at = 1.0, at
        return bucket

    def wait_s(self, now: float) -> float:
        """Return how long until something may be taken; 0 for now."""
        self._level = min(self._most, self._level + (now - self._at) * self._per_s)
        self._at = now
        return max(0.0, (1.0 - self._level) / self._per_s) if self._level < 1.0 else 0.0

    def take(self, amount: float) -> None:
        """Take more than there is, if need be; others then wait longer."""
        self._level -= amount
