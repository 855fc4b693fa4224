"""All that daemons measure, and what the files for Prometheus and Grafana ask of it."""

import json
import re
from pathlib import Path
from typing import Any

from laser_vfl.client.client_metrics import COUNTED
from laser_vfl.client.status_gauges import OBSERVED
from laser_vfl.coordinator.api.coordinator_metrics import MEASURES
from laser_vfl.observability.metric_definitions import EVERYWHERE, MetricDefinition

ROOT = Path(__file__).parents[3]
OBSERVE = ROOT / "deploy" / "observe"

CATALOGUE: dict[str, tuple[MetricDefinition, ...]] = {
    "At both": EVERYWHERE,
    "At a client": (*COUNTED, *OBSERVED),
    "At the coordinator": MEASURES,
}
"""By the title of the section in docs/metrics.md."""

ALL = [measure for measures in CATALOGUE.values() for measure in measures]

PROCESS = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
}

_NAME = re.compile(r"\b(?:laser_vfl|process)_[a-z_]+\b")


def series(measure: MetricDefinition) -> set[str]:
    """Return the names of the samples that a measure has on a page."""
    if measure.kind == "histogram":
        return {f"{measure.name}_{part}" for part in ("bucket", "sum", "count")}
    return {measure.name}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    return dict(json.loads((OBSERVE / "dashboard.json").read_text("utf-8")))


def expressions() -> dict[str, str]:
    """Return every expression of the dashboard by where it is, with Grafana's words filled in."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for word, value in (("$__rate_interval", "1m"), ("$instance", ".*")):
                expression = expression.replace(word, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def names_in(expression: str) -> set[str]:
    """Return the series that an expression asks for."""
    return set(_NAME.findall(expression))
