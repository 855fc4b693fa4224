"""Runs that start at regular intervals, where the coordinator's owner wants that."""


class RunSchedule:
    """Says when the next run is due. Times are of the wall clock: they outlive the process."""

    def __init__(self, every_s: float | None, counted_from: float | None = None) -> None:
        self.counted_from = counted_from
        """When the last run started, or was due; None if nothing says when."""
        self._every_s = every_s

    @property
    def next_at(self) -> float | None:
        """When the next run is due; None without a schedule."""
        if self._every_s is None or self.counted_from is None:
            return None
        return self.counted_from + self._every_s

    def is_due(self, wall_now: float) -> bool:
        """Whether a run is due now. One that was missed is made up for once."""
        if self.counted_from is None or self.counted_from > wall_now:
            self.counted_from = wall_now  # nothing is known, or the clock was set back
        return self.next_at is not None and wall_now >= self.next_at

    def restart(self, wall_at: float) -> None:
        """Count from a time at which a run started, or was due."""
        self.counted_from = wall_at
