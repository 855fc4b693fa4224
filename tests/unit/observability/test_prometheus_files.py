"""The files for Prometheus and Grafana: promtool takes them, and they ask for what there is."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.observability.metrics_catalogue import (
    ALL,
    OBSERVE,
    PROCESS,
    ROOT,
    dashboard,
    expressions,
    names_in,
    series,
)
from tests.support.observability.metrics_pages import needs_promtool, promtool

DAEMONS = ["coordinator", "bank", "shop", "telco", "clinic"]
KNOWN = PROCESS.union(*(series(measure) for measure in ALL))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def alerts() -> dict[str, str]:
    [group] = read(OBSERVE / "rules.yml")["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


@needs_promtool
def test_promtool_takes_the_scrape_config_and_the_alerts() -> None:
    promtool("check", "config", str(OBSERVE / "prometheus.yml"))


@needs_promtool
def test_promtool_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions().values())
    ]
    assert len(rules) > 30
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


@needs_promtool
def test_alerts_come_when_they_should() -> None:
    promtool("test", "rules", str(Path(__file__).parent / "alerts.yml"))


def test_the_dashboard_asks_for_what_there_is() -> None:
    for place, expression in expressions().items():
        assert names_in(expression), place
        assert names_in(expression) <= KNOWN, place


def test_alerts_ask_for_what_there_is() -> None:
    for alert, expression in alerts().items():
        assert names_in(expression) <= KNOWN, alert


def test_everything_that_is_measured_is_shown_or_documented_as_not_shown() -> None:
    shown = set().union(*map(names_in, [*expressions().values(), *alerts().values()]))
    unseen = {measure.name for measure in ALL if not series(measure) & shown}
    assert unseen == {
        "laser_vfl_build_info",  # which the choice of daemons asks for
        "laser_vfl_epoch",
        "laser_vfl_work_done_items",
        "laser_vfl_work_items",
        "laser_vfl_training_samples",
        "laser_vfl_checkpoint_step",
        "laser_vfl_complete_checkpoint_step",
        "laser_vfl_client_next_step",
        "laser_vfl_waiting_for",
        "laser_vfl_peer_questions_total",
    }


def test_panels_are_apart_and_have_titles() -> None:
    places = set()
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard()["panels"]:
        assert panel["title"]
        box = panel["gridPos"]
        assert box["x"] + box["w"] <= 24
        cells = {
            (x, y)
            for x in range(box["x"], box["x"] + box["w"])
            for y in range(box["y"], box["y"] + box["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells


def test_every_daemon_of_the_compose_file_is_read() -> None:
    [job] = read(OBSERVE / "prometheus.yml")["scrape_configs"]
    [targets] = job["static_configs"]
    assert targets["targets"] == [f"{name}-metrics:9464" for name in DAEMONS]
    compose = read(ROOT / "deploy" / "compose.observe.yaml")
    services = compose["services"]
    for name in DAEMONS:
        listen = services[name]["environment"]["LASER_VFL_METRICS_LISTEN"]
        assert listen == f"{name}-metrics:9464"
        assert services[name]["networks"] == {name: {"aliases": [f"{name}-metrics"]}}
    assert services["prometheus"]["networks"] == [*DAEMONS, "look"]
    for name in ("prometheus", "grafana"):
        assert "look" in services[name]["networks"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])


def test_what_is_mounted_is_there() -> None:
    services = read(ROOT / "deploy" / "compose.observe.yaml")["services"]
    volumes = [v for service in services.values() for v in service.get("volumes", [])]
    files = [volume.partition(":")[0] for volume in volumes if volume.startswith("./")]
    assert len(files) == 5
    for file in files:
        assert (ROOT / "deploy" / file).is_file()


def test_grafana_knows_the_source_by_the_name_that_panels_use() -> None:
    [source] = read(OBSERVE / "grafana" / "datasource.yml")["datasources"]
    uids = re.findall(r'"uid": "(prometheus)"', (OBSERVE / "dashboard.json").read_text("utf-8"))
    assert len(uids) > 30
    assert source["uid"] == "prometheus"
    [provider] = read(OBSERVE / "grafana" / "dashboards.yml")["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
