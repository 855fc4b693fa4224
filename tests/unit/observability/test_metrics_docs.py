"""docs/metrics.md has every metric that there is, and no other; names keep to the conventions."""

import re

import pytest

from laser_vfl.observability.metric_definitions import MetricDefinition
from tests.support.observability.metrics_catalogue import ALL, CATALOGUE, PROCESS, ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def row(measure: MetricDefinition) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"| `{measure.name}` | {measure.kind} | {labels} | {measure.help} |"


@pytest.mark.parametrize("title", CATALOGUE)
def test_every_metric_has_its_row(title: str) -> None:
    rows = [line for line in section(title).splitlines() if line.startswith("| `")]
    assert rows == [row(measure) for measure in CATALOGUE[title]]


def test_those_of_the_process_are_named() -> None:
    assert set(re.findall(r"`(process_[a-z_]+)`", section("Of the process"))) == PROCESS


def test_reasons_and_phases_are_listed() -> None:
    from laser_vfl.client.client_metrics import PHASES
    from laser_vfl.client.status_gauges import DROPPED_FOR, OFFENCES
    from laser_vfl.observability.metric_definitions import OTHER, reason_of
    from laser_vfl.transport.grpc_status import REFUSALS

    values = {*PHASES, OTHER, *map(reason_of, REFUSALS)}
    values |= {reason.replace(" ", "_") for reason in (*DROPPED_FOR, *OFFENCES)}
    for value in values:
        assert f"`{value}`" in section("What labels say"), value


@pytest.mark.parametrize("measure", ALL, ids=lambda measure: measure.name)
def test_names_keep_to_the_conventions(measure: MetricDefinition) -> None:
    assert re.fullmatch(r"laser_vfl(_[a-z]+)+", measure.name)
    assert measure.name.endswith("_total") == (measure.kind == "counter")
    if measure.kind == "histogram":
        assert measure.name.endswith("_seconds")
    assert not re.search(
        r"_(ms|milliseconds|minutes|mb|percent|count|sum|bucket)(_|$)", measure.name
    )
    assert measure.help[0].isupper()
    assert not measure.help.endswith(".")


def test_no_name_is_used_twice() -> None:
    names = [measure.name for measure in ALL]
    assert len(set(names)) == len(names)
