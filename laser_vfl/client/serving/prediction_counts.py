"""What this client has predicted since it was started, for its status and its metrics page."""

from collections import Counter

from laser_vfl.client.client_metrics import ClientMetrics


class PredictionCounts:
    """Counts requests and samples, and samples by the subset of blocks that was used."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self.num_requests = self.num_predicted = self.num_sample_errors = 0
        self.num_by_subset: Counter[int] = Counter()
        """By the mask of blocks in the roster of the current model."""
        self._metrics = metrics

    def add(self, by_subset: Counter[int], num_errors: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.num_requests += 1
        self.num_predicted += by_subset.total()
        self.num_sample_errors += num_errors
        self.num_by_subset.update(by_subset)
        self._metrics.predicted(by_subset, num_errors, seconds)

    def roster_changed(self) -> None:
        """Start anew to count subsets: masks mean other blocks now."""
        self.num_by_subset.clear()
