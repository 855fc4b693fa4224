"""The circuit breaker: a peer that failed is not asked again until it answers a probe."""

MIN_PATIENCE_S = 0.05
SLOW_FACTOR = 10.0
MAX_MISSED = 3
FIRST_PROBE_S = 0.25
LAST_PROBE_S = 5.0
SMOOTHING_UP, SMOOTHING_DOWN = 0.1, 0.5


class Breaker:
    """What is known of one peer from its answers. Times are durations; it has no clock."""

    def __init__(self) -> None:
        self.problem = ""
        """Why the peer is not asked; empty while it is."""
        self.usual_s: float | None = None
        self._probe_after_s = FIRST_PROBE_S
        self._num_missed = 0

    @property
    def is_open(self) -> bool:
        """Whether the peer is not asked for now."""
        return bool(self.problem)

    def is_well(self) -> None:
        """Close the breaker: the peer has answered a probe."""
        self.problem = ""
        self._num_missed = 0

    def answered(self, took_s: float) -> None:
        """Close the breaker and update the usual time: the peer has answered a question."""
        self.is_well()
        self._probe_after_s = FIRST_PROBE_S
        usual = took_s if self.usual_s is None else self.usual_s
        smoothing = SMOOTHING_UP if took_s > usual else SMOOTHING_DOWN
        self.usual_s = usual + smoothing * (took_s - usual)

    def failed(self, problem: str) -> None:
        """Open the breaker: the peer did not answer, or not properly."""
        self.problem = problem

    def kept_waiting(self, waited_s: float, *, is_counted: bool = False) -> bool:
        """Tell whether to stop asking a peer because somebody could not wait for it any longer.

        That is so when the wait was out of proportion, or when several questions in a row were not
        answered in time. Several callers may wait for the answer to one message: `is_counted` says
        that it has been counted before.
        """
        if waited_s < MIN_PATIENCE_S:
            return False
        self._num_missed += not is_counted
        return self._num_missed >= MAX_MISSED or waited_s >= SLOW_FACTOR * (self.usual_s or 0.0)

    def next_probe_s(self) -> float:
        """Return how long to wait before the next probe; longer each time."""
        wait_s = self._probe_after_s
        self._probe_after_s = min(2 * wait_s, LAST_PROBE_S)
        return wait_s
