"""What a daemon measures: the name, kind, labels and words of each thing on its metrics page."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from laser_vfl.core.release import __version__
from laser_vfl.observability.audit_log import Refused
from laser_vfl.security.credentials import Credentials

OTHER = "other"

Values = Mapping[tuple[str, ...], float]
"""A number for the values of all labels."""


@dataclass(frozen=True)
class MetricDefinition:
    """One thing that is measured, as it is called on the page."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def counter(self) -> Counter:
        """Return a counter to add to as things happen."""
        return Counter(self.name, self.help, self.labels, registry=None)

    def gauge(self) -> Gauge:
        """Return a gauge to set as things happen."""
        return Gauge(self.name, self.help, self.labels, registry=None)

    def histogram(self, bounds: Sequence[float]) -> Histogram:
        """Return a histogram of what is observed, with these upper bounds."""
        return Histogram(self.name, self.help, self.labels, registry=None, buckets=bounds)

    def now(self, values: Values | float | None) -> Metric:
        """Return what it is at this moment, for what is counted elsewhere; None if unknown."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(self.name, self.help, labels=self.labels)
        if values is None:
            return family
        for labels, value in (values if isinstance(values, Mapping) else {(): values}).items():
            family.add_metric(labels, value)
        return family


BUILD = MetricDefinition(
    "laser_vfl_build_info",
    "gauge",
    "Always 1; its labels say what this daemon is",
    ("role", "name", "federation", "release", "protocol_version"),
)
CERTIFICATE = MetricDefinition(
    "laser_vfl_certificate_end_timestamp_seconds",
    "gauge",
    "When this daemon's certificate ends, in Unix time; absent without TLS",
)
REFUSED = MetricDefinition(
    "laser_vfl_refusals_total",
    "counter",
    "Calls that this daemon refused, by reason",
    ("reason",),
)
GENERATION = MetricDefinition(
    "laser_vfl_view_generation",
    "gauge",
    "The generation of the view, of the run under way or of the last one; 0 before the first",
)
MEMBER = MetricDefinition(
    "laser_vfl_view_member",
    "gauge",
    "Whether a client of the roster is a member of that view (1) or not (0)",
    ("client",),
)
SAMPLES = MetricDefinition(
    "laser_vfl_training_samples",
    "gauge",
    "Training samples of the run, held by anybody; 0 before the first alignment",
)
AVAILABILITY = MetricDefinition(
    "laser_vfl_block_availability_ratio",
    "gauge",
    "Share of these samples that have a block; blocks are named after their clients",
    ("block",),
)

EVERYWHERE = (BUILD, CERTIFICATE, REFUSED, GENERATION, MEMBER, SAMPLES, AVAILABILITY)
"""What both daemons measure."""


class Refusals:
    """Counts refused calls by the kind of the error, of which there is a closed set."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.counter = REFUSED.counter()
        self._by_kind = {kind: self.counter.labels(reason_of(kind)) for kind in kinds}
        self._other = self.counter.labels(OTHER)

    def counted(self, refused: Refused) -> Refused:
        """Return what counts a refusal and then hands it on."""

        def refuse(identity: str, method: str, kind: str, reason: str) -> None:
            self._by_kind.get(kind, self._other).inc()
            refused(identity, method, kind, reason)

        return refuse


def reason_of(kind: str) -> str:
    """Return a kind of error as a label: "limit_exceeded" for "LimitExceeded"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.removesuffix("Error")).lower()


@dataclass(frozen=True)
class Owner(Collector):
    """The daemon that the page is of."""

    role: str
    name: str
    federation: str
    credentials: Credentials
    protocol_version: int

    def collect(self) -> Iterator[Metric]:
        """Say what this daemon is, and how long its certificate lasts."""
        labels = (self.role, self.name, self.federation, __version__, str(self.protocol_version))
        yield BUILD.now({labels: 1.0})
        material = self.credentials.material
        yield CERTIFICATE.now(material.ends_at.timestamp() if material else None)


def availability(total: int, by_block: Mapping[str, int]) -> tuple[Metric, Metric]:
    """Return how many samples there are, and which share of them has each block."""
    shares: Values = {(block,): num / max(total, 1) for block, num in by_block.items()}
    return SAMPLES.now(total), AVAILABILITY.now(shares)


class _Collected(Collector):
    """What several things have to say, without when each series began."""

    def __init__(self, sources: Iterable[Collector]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            for family in source.collect():
                family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                yield family


def registry_of(*sources: Collector) -> CollectorRegistry:
    """Return a daemon's own registry, with figures of its process; several may be in one."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collected(sources))
    return registry
