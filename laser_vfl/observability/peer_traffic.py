"""How many messages and bytes crossed between this client and each peer, by what they were for."""

from collections.abc import Iterator
from typing import Literal

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.observability.metric_definitions import MetricDefinition

Purpose = Literal["training", "prediction", "alignment"]
Direction = Literal["sent", "received"]

MAX_SERIES = 512
"""A roster of 64 needs 378."""

OTHERS = "others"

LABELS = ("peer", "purpose", "direction")
FRAMES = MetricDefinition(
    "laser_vfl_peer_frames_total",
    "counter",
    "Messages to and from a peer, by what for: training, prediction or alignment",
    LABELS,
)
BYTES = MetricDefinition(
    "laser_vfl_peer_bytes_total",
    "counter",
    "Bytes of these messages, without what gRPC and TLS add",
    LABELS,
)


class PeerTraffic(Collector):
    """Sums by peer, purpose and direction. It lives on the event loop of its daemon."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], list[int]] = {}

    def sent(self, peer: str, purpose: Purpose, num_bytes: int) -> None:
        """Count a message to a peer."""
        self._count(peer, purpose, "sent", num_bytes)

    def received(self, peer: str, purpose: Purpose, num_bytes: int) -> None:
        """Count a message of a peer."""
        self._count(peer, purpose, "received", num_bytes)

    def collect(self) -> Iterator[Metric]:
        """Return all sums."""
        sums = dict(self._sums)
        yield FRAMES.now({key: num_frames for key, (num_frames, _) in sums.items()})
        yield BYTES.now({key: num_bytes for key, (_, num_bytes) in sums.items()})

    def _count(self, peer: str, purpose: Purpose, direction: Direction, num_bytes: int) -> None:
        sums = self._sums.get((peer, purpose, direction))
        if sums is None:
            if len(self._sums) >= MAX_SERIES:
                peer = OTHERS
            sums = self._sums.setdefault((peer, purpose, direction), [0, 0])
        sums[0] += 1
        sums[1] += num_bytes
