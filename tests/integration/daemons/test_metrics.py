"""The metrics of a real federation: promtool takes them, and they say what the daemons did."""

import os
import re
import signal
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import grpc
import polars as pl
import pytest

from laser_vfl.core.training.applied_steps import Applied
from laser_vfl.security.identity import client_of
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from tests.support.daemons.harness import Process, Site, eventually, free_address
from tests.support.data.people import People
from tests.support.observability.metrics_catalogue import expressions
from tests.support.observability.metrics_pages import Page, needs_promtool, promtool
from tests.support.observability.prometheus_server import needs_prometheus, prometheus
from tests.support.oracle.step_logs import read_log

ROSTER = ["bank", "shop", "telco"]
HEADS = ["bank", "telco"]
ONLY_IN_A_RUN = {"Progress A", "Peers within reach B"}
TRAINING = {"batching": "by_pattern", "epochs": 2}
pytestmark = pytest.mark.timeout(180)


@dataclass
class Observed:
    """A federation that has trained, was asked, and rests."""

    site: Site
    coordinator: Process
    clients: dict[str, Process]
    ids: list[str]
    """Of samples that bank holds."""

    def page(self, name: str) -> Page:
        daemon = self.coordinator if name == "coordinator" else self.clients[name]
        return Page(daemon.metrics_page())


@pytest.fixture(scope="module")
def observed(shared_site: Site) -> Observed:
    site, people, clients = shared_site, People(120), {}
    coordinator = site.start_coordinator(site.coordinator_config(ROSTER, TRAINING))
    for name in ROSTER:
        label = "kind" if name in HEADS else None
        people.write(site.path, name, p_hold=0.7, label=label, test_share=0.25)
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        config = site.client_config(name, data={**data, **({"label": label} if label else {})})
        clients[name] = site.start_client(config)
    for client in clients.values():
        client.wait_for_served()
    held = pl.read_csv(site.path / "bank_test.csv")["id"].to_list()
    with clients["bank"].predictor() as predictor:
        eventually(
            lambda: predictor.predict(held).blocks.sum(axis=1).max() == len(ROSTER),
            "bank predicts with all blocks",
        )
    return Observed(site, coordinator, clients, held)


@needs_promtool
@pytest.mark.parametrize("name", ["coordinator", *ROSTER])
def test_promtool_has_nothing_against_the_page(observed: Observed, name: str) -> None:
    assert promtool("check", "metrics", text=observed.page(name).text) == ""


@needs_prometheus
def test_prometheus_reads_all_and_every_panel_has_data(observed: Observed, tmp_path: Path) -> None:
    daemons = {"coordinator": observed.coordinator, **observed.clients}
    addresses = {name: daemon.wait_metrics() for name, daemon in daemons.items()}
    with prometheus(tmp_path, addresses) as server:

        def are_up() -> bool:
            found = {s["metric"]["instance"]: s["value"][1] for s in server.results("up")}
            return found == dict.fromkeys(daemons, "1")

        eventually(are_up, "all daemons are read")
        for place, expression in expressions().items():
            if place not in ONLY_IN_A_RUN:
                eventually(lambda e=expression: server.results(e), f"{place} has data", 30)
        [group] = server.ask("rules")["groups"]
        assert not [rule for rule in group["rules"] if rule["health"] == "err"]


@pytest.mark.parametrize("name", ROSTER)
def test_steps_are_those_that_were_taken(observed: Observed, name: str) -> None:
    (path,) = (observed.site.path / f"{name}-state").glob("**/steps.log")
    applied = [entry for entry in read_log(path) if isinstance(entry, Applied)]
    last = observed.site.metrics(name)[-1]
    page = observed.page(name)
    assert page.value("laser_vfl_steps_total") == len(applied) > 0
    skipped = page.value("laser_vfl_steps_skipped_total")
    assert len(applied) + skipped == last["step"]
    assert skipped > 0
    assert page.value("laser_vfl_steps_redone_total") == 0
    assert page.value("laser_vfl_epoch") == last["epoch"] == TRAINING["epochs"] - 1
    if name in HEADS:  # a line says None when no step that counts fell into its time
        losses = [line["loss"] for line in observed.site.metrics(name)]
        last_loss = [loss for loss in losses if loss is not None][-1]
        assert page.value("laser_vfl_loss") == pytest.approx(last_loss)
    else:
        assert "laser_vfl_loss" not in page.names


@pytest.mark.parametrize("name", ROSTER)
def test_phases_add_up_to_the_time_of_the_steps(observed: Observed, name: str) -> None:
    page = observed.page(name)
    phases = page.values("laser_vfl_step_phase_seconds_total", "phase")
    assert sum(phases.values()) == pytest.approx(page.value("laser_vfl_step_seconds_sum"))
    assert page.value("laser_vfl_step_seconds_count") == page.value("laser_vfl_steps_total")
    assert phases["compute"] > 0
    assert phases["wait_gradients"] > 0
    assert (phases["wait_representations"] > 0) == (name in HEADS)


@pytest.mark.parametrize("measure", ["laser_vfl_peer_frames_total", "laser_vfl_peer_bytes_total"])
def test_what_one_sent_is_what_the_other_received(observed: Observed, measure: str) -> None:
    def crossed() -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
        sent, received = Counter(), Counter()
        for name in ROSTER:
            page = observed.page(name)
            for purpose in ("training", "alignment", "prediction"):
                for counts, direction in ((sent, "sent"), (received, "received")):
                    labels = {"purpose": purpose, "direction": direction}
                    for peer, num in page.values(measure, "peer", **labels).items():
                        ends = (name, peer) if direction == "sent" else (peer, name)
                        counts[*ends, purpose] += int(num)
        return sent, received

    def agree() -> bool:
        sent, received = crossed()
        return sent == received

    eventually(agree, "both ends have counted the same", 20)
    sent, _ = crossed()
    for one in ROSTER:
        for other in {*ROSTER} - {one}:
            assert sent[one, other, "training"] > 0
    assert sent["bank", "shop", "alignment"] > 0
    assert sent["bank", "shop", "prediction"] > 0


def test_availability_is_that_of_the_tables(observed: Observed) -> None:
    ids = {
        name: set(pl.read_csv(observed.site.path / f"{name}_train.csv")["id"]) for name in ROSTER
    }
    everybody = set().union(*ids.values())
    shares = {name: pytest.approx(len(ids[name]) / len(everybody)) for name in ROSTER}
    for daemon in ("coordinator", "bank", "shop"):
        page = observed.page(daemon)
        assert page.value("laser_vfl_training_samples") == len(everybody)
        assert page.values("laser_vfl_block_availability_ratio", "block") == shares


def test_predictions_are_counted_by_their_blocks(observed: Observed) -> None:
    def counts() -> tuple[dict[str, float], Page]:
        page = observed.page("bank")
        return page.values("laser_vfl_predictions_total", "blocks"), page

    before, page_before = counts()
    with observed.clients["bank"].predictor() as predictor:
        blocks = predictor.predict([*observed.ids, "nobody"]).blocks.sum(axis=1).tolist()
    expected = Counter(str(num) for num in blocks if num)
    eventually(lambda: sum(counts()[0].values()) > sum(before.values()), "they are counted")
    after, page = counts()
    assert {n: after[n] - before.get(n, 0) for n in after if after[n] != before.get(n, 0)} == {
        n: expected[n] for n in expected
    }
    for name, more in (
        ("laser_vfl_prediction_requests_total", 1),
        ("laser_vfl_prediction_seconds_count", 1),
        ("laser_vfl_prediction_errors_total", 1),
    ):
        assert page.value(name) == page_before.value(name) + more
    wanted = page.values("laser_vfl_prediction_blocks_wanted_total", "block")
    had = page.values("laser_vfl_prediction_blocks_available_total", "block")
    assert set(wanted) == {"shop", "telco"}
    assert all(0 < had[block] < wanted[block] for block in wanted)


def test_refusals_are_counted_by_reason(observed: Observed) -> None:
    def refused() -> float:
        return observed.page("bank").value("laser_vfl_refusals_total", reason="identity")

    before = refused()
    assert observed.site.authority is not None
    shown = {k: Path(v).read_bytes() for k, v in observed.site.authority.issue("shop").items()}
    credentials = grpc.ssl_channel_credentials(shown["ca"], shown["key"], shown["cert"])
    bank = client_of(observed.site.federation, "bank")
    options = [("grpc.ssl_target_name_override", bank.dns)]
    address = observed.clients["bank"].wait_predict()
    with (
        grpc.secure_channel(address, credentials, options) as channel,
        pytest.raises(grpc.RpcError, match="may not call GetClientStatus"),
    ):
        PredictionStub(channel).GetClientStatus(pb.GetClientStatusRequest(), timeout=10)
    eventually(lambda: refused() == before + 1, "a refusal is counted")


def test_who_is_there_and_what_became_of_the_run(observed: Observed) -> None:
    page = observed.page("coordinator")
    assert page.values("laser_vfl_client_up", "client") == dict.fromkeys(ROSTER, 1)
    assert sum(page.values("laser_vfl_clients", "state").values()) == len(ROSTER)
    runs = page.values("laser_vfl_run_events_total", "event")
    assert (runs["started"], runs["finished"], runs["given_up"]) == (1, 1, 0)
    aligned = page.values("laser_vfl_alignments_total", "outcome", purpose="run")
    assert aligned["aligned"] == 1
    for name in ("coordinator", "bank"):
        page = observed.page(name)
        assert page.value("laser_vfl_view_generation") == 1
        assert page.values("laser_vfl_view_member", "client") == dict.fromkeys(ROSTER, 1)
        assert page.value("process_resident_memory_bytes") > 1e6
        assert page.value("laser_vfl_certificate_end_timestamp_seconds") > 1e9
    client = observed.page("bank")
    assert client.value("laser_vfl_coordinator_up") == 1
    assert client.value("laser_vfl_held_samples") > 0
    assert client.value("laser_vfl_activity", activity="idle") == 1
    assert client.values("laser_vfl_peer_available", "peer") == {"shop": 1, "telco": 1}


@pytest.mark.parametrize("name", ["coordinator", *ROSTER])
def test_nothing_of_the_people_is_on_the_page(observed: Observed, name: str) -> None:
    text = observed.page(name).text
    for secret in ("person-", "green", "a secret of the clients"):
        assert secret not in text
    labels = set(re.findall(r'[{,](\w+)="', text))
    assert labels <= {
        *("role", "name", "federation", "release", "protocol_version", "reason", "client"),
        *("block", "phase", "le", "blocks", "activity", "work", "peer", "purpose", "direction"),
        *("state", "event", "outcome"),
    }


def test_status_says_where_the_metrics_are(observed: Observed) -> None:
    asked = observed.site.run("bank", "status", "--config", "bank.yaml", label="asked")
    assert asked.wait_exit() == 0
    assert f"metrics at http://{observed.clients['bank'].wait_metrics()}/metrics" in asked.stdout


def test_a_visitor_who_stays_does_not_hold_up_the_end(plain_site: Site) -> None:
    address = free_address()
    coordinator = plain_site.start_coordinator(
        plain_site.coordinator_config(ROSTER, {}), "--metrics-listen", address
    )
    assert coordinator.wait_metrics() == address
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as visitor:
        visitor.sendall(b"GET /metr")
        coordinator.signal(signal.SIGTERM)
        assert coordinator.wait_exit(10) == 0
    assert "Traceback" not in coordinator.stderr


def test_doctor_tells_our_page_from_another(plain_site: Site) -> None:
    address = free_address()
    config = plain_site.coordinator_config(ROSTER, {}, metrics_listen=address)
    plain_site.start_coordinator(config)
    other = plain_site.coordinator_config(ROSTER, {}, metrics_listen=address)
    plain_site.write("other", {**other, "federation": "another", "state": "./other-state"})
    for file, said in (("coordinator", "the daemon is up"), ("other", "in use by somebody else")):
        asked = plain_site.run(
            "doctor", "doctor", "--config", f"{file}.yaml", "--insecure", label=f"doctor-{file}"
        )
        assert asked.wait_exit() == (0 if file == "coordinator" else 4)
        [line] = [line for line in asked.stdout.splitlines() if "metrics_listen" in line]
        assert address in line
        assert said in line


@pytest.mark.parametrize("daemon", ["coordinator", "client"])
def test_an_address_in_use_is_an_error_at_the_start(plain_site: Site, daemon: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        if daemon == "client":
            People(20).write(plain_site.path, "bank")
            config = plain_site.client_config("bank", metrics_listen=address)
        else:
            config = plain_site.coordinator_config(ROSTER, {}, metrics_listen=address)
        file = plain_site.write(daemon, config)
        process = plain_site.run(daemon, daemon, "run", "--config", file.name, "--insecure")
        assert process.wait_exit() == 4
    last = process.stderr.splitlines()[-1]
    assert last.startswith(f"cannot listen on {address}; ")
    assert "`metrics_listen`" in last
    assert not process.stdout


def test_what_is_no_address_is_an_error(plain_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    file = plain_site.write("coordinator", plain_site.coordinator_config(ROSTER, {}))
    monkeypatch.setitem(os.environ, "LASER_VFL_METRICS_LISTEN", "9464")
    process = plain_site.run(
        "coordinator", "coordinator", "run", "--config", file.name, "--insecure"
    )
    assert process.wait_exit() == 2
    assert process.stderr.startswith("--metrics-listen: expected an address host:port")
