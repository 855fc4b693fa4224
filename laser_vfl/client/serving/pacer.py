"""Keeps what this client asks of one peer within the rate that the peer allows."""

from laser_vfl.core.token_bucket import Bucket

SHARE = 0.98
"""How much of the measured rate is used: measured times have the jitter of the network in them."""

MEASURED_S = 0.5
"""A rate is measured over at least so long, if need be over several refusals: times are in ms."""

KNOWN_FOR_S = 10.0
"""How long a measured rate is kept; the peer may have been given another limit since."""


class Pacer:
    """Learns the rate of one peer from its refusals, each of which says when to ask again.

    A peer lets anything through once it is out of debt, and refuses until then. So what it answered
    from the time that one refusal named until the time that the next one names is its rate.
    """

    def __init__(self) -> None:
        self._not_before = 0.0
        self._counted_from: float | None = None
        """The time that a refusal named, from which on is counted; None without one of late."""
        self._num_sent = 0
        """Samples asked for since then, but for those that were refused."""
        self._bucket: Bucket | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the peer has refused something of late, as far as is known."""
        return self._counted_from is not None

    @property
    def is_learning(self) -> bool:
        """Whether the peer has a limit that is not known yet."""
        return self._counted_from is not None and self._bucket is None

    def wait_s(self, now: float) -> float:
        """Return how long to wait before the next question; 0 for now."""
        if self._counted_from is None:
            return 0.0
        if now > self._not_before + KNOWN_FOR_S:
            self._counted_from = self._bucket = None
            return 0.0
        waits = [self._not_before - now, self._bucket.wait_s(now) if self._bucket else 0.0]
        return max(0.0, *waits)

    def sent(self, num_samples: int) -> None:
        """Count a question that was sent."""
        self._num_sent += num_samples
        if self._bucket is not None:
            self._bucket.take(num_samples)

    def refused(self, num_unanswered: int, retry_after_s: float, now: float) -> None:
        """Take note of a refusal; `num_unanswered` of the samples sent were not answered for."""
        self._not_before = now + retry_after_s
        self._num_sent -= num_unanswered
        seconds = 0.0
        if self._counted_from is not None:
            seconds = self._not_before - self._counted_from
            if self._num_sent > 0 and seconds > 0:
                rate = SHARE * self._num_sent / seconds
                self._bucket = Bucket.allowing_at(rate, self._not_before)
        if self._counted_from is None or seconds >= MEASURED_S:
            self._counted_from = self._not_before
            self._num_sent = 0
