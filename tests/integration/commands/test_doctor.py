"""`laser-vfl doctor` beside real daemons: all is well, and then one thing after another is not."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from laser_vfl.cli.doctor.doctor_command import run_doctor
from laser_vfl.remote.operations import coordinator_status
from laser_vfl.security.certificate_files import load_authority, renew
from tests.support.daemons.harness import Authority, Process, Site, eventually, free_address
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]

Findings = dict[str, dict[str, Any]]


def doctor(
    site: Site, config: Mapping[str, Any], *, insecure: bool = False
) -> tuple[int, Findings]:
    """Examine a daemon from this process; return the exit code and what was found, by check."""
    path = site.write("examined", config)
    text = io.StringIO()
    with redirect_stdout(text):
        code = run_doctor(path, insecure=insecure, as_json=True)
    return int(code), _by_check(text.getvalue())


def _by_check(text: str) -> Findings:
    return {finding["check"]: finding for finding in json.loads(text)["findings"]}


def failures(findings: Findings) -> list[str]:
    return [check for check, finding in findings.items() if finding["status"] == "FAIL"]


@dataclass
class Gathered:
    """A coordinator with two of three clients, which wait for the third."""

    site: Site
    coordinator: Process
    coordinator_config: dict[str, Any]
    config: dict[str, Any]


@pytest.fixture(scope="module")
def gathered(shared_site: Site) -> Gathered:
    site = shared_site
    (site.path / "id.secret").chmod(0o600)
    people = People(40)
    for name in ROSTER:
        people.write(site.path, name)
    coordinator_config = site.coordinator_config(ROSTER, {}, listen=free_address())
    coordinator = site.start_coordinator(coordinator_config)
    listen, predict_listen = free_address(), free_address()
    config = site.client_config("bank", listen=listen, predict_listen=predict_listen)
    site.start_client(config)
    site.start_client(site.client_config("shop"))

    def num_up() -> int:
        clients = coordinator_status(site.address, site.operator_access())["clients"]
        return sum(client["up"] for client in clients)

    eventually(lambda: num_up() == 2, "two clients are there")
    return Gathered(site, coordinator, coordinator_config, config)


def test_all_is_well_with_the_daemons_up(gathered: Gathered) -> None:
    gathered.site.write("examined", gathered.config)
    command = ["doctor", "--config", "examined.yaml", "--format", "json"]
    process = gathered.site.run("bank", *command, label="doctor")
    assert process.wait_exit() == 0, process.stderr
    assert process.stderr == ""
    findings = _by_check(process.stdout)
    assert {finding["status"] for finding in findings.values()} == {"ok"}, findings
    for key in ("listen", "predict_listen"):
        assert "the daemon is up" in findings[key]["message"]
    assert "spiffe://trial/coordinator" in findings["coordinator"]["message"]
    assert "the coordinator knows bank" in findings["roster"]["message"]
    assert "spiffe://trial/client/shop" in findings["peer shop"]["message"]
    assert "peer bank" not in findings


def test_a_coordinator_examines_itself(gathered: Gathered) -> None:
    code, findings = doctor(gathered.site, gathered.coordinator_config)
    assert code == 0, findings
    assert "the daemon is up" in findings["listen"]["message"]
    assert findings["clients"]["message"] == "2 of 3 are connected, not telco"


def test_a_client_that_is_not_on_the_roster(gathered: Gathered) -> None:
    site = gathered.site
    config = site.client_config("gym", data={"train": "shop_train.csv", "id": "id"})
    code, findings = doctor(site, config)
    assert (code, failures(findings)) == (6, ["roster"])
    assert '"gym" is not on the roster' in findings["roster"]["message"]
    assert not [check for check in findings if check.startswith("peer")]


def test_a_certificate_of_a_foreign_authority(gathered: Gathered, tmp_path: Path) -> None:
    """First nobody trusts the other, then the coordinator alone does not trust us."""
    foreign = Authority(tmp_path / "foreign").issue("bank")
    config = {**gathered.config, "listen": "127.0.0.1:0", "predict_listen": "127.0.0.1:0"}
    code, findings = doctor(gathered.site, {**config, "tls": foreign})
    assert code == 5
    assert "coordinator is not from our authority" in findings["coordinator"]["message"]
    ours = {**foreign, "ca": gathered.config["tls"]["ca"]}
    code, findings = doctor(gathered.site, {**config, "tls": ours})
    assert code == 5
    assert failures(findings)[:2] == ["chain", "coordinator"]
    assert "does not accept our certificate" in findings["coordinator"]["message"]


def test_an_expired_certificate(gathered: Gathered, authority: Authority, tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    [cert] = renew(
        load_authority(authority.directory),
        tmp_path,
        [authority.identity("telco")],
        days=1,
        now=long_ago,
    )
    tls = {"ca": authority.issue("bank")["ca"], "cert": str(cert)}
    tls["key"] = str(cert.with_suffix(".key"))
    code, findings = doctor(gathered.site, gathered.site.client_config("telco", tls=tls))
    assert (code, failures(findings)) == (5, ["certificate", "coordinator"])
    assert "has expired on" in findings["certificate"]["message"]
    assert "does not accept our certificate" in findings["coordinator"]["message"]


def test_somebody_else_at_the_address(gathered: Gathered) -> None:
    config = {**gathered.config, "coordinator": gathered.config["listen"]}
    code, findings = doctor(gathered.site, config)
    assert code == 5
    assert "expected coordinator.trial" in findings["coordinator"]["message"]
    assert "found DNS bank.client.trial" in findings["coordinator"]["message"]


def test_a_port_that_another_daemon_has(gathered: Gathered) -> None:
    config = gathered.site.client_config("telco", listen=gathered.config["listen"])
    code, findings = doctor(gathered.site, config)
    assert (code, failures(findings)) == (4, ["listen"])
    assert "in use by somebody else" in findings["listen"]["message"]


def test_we_speak_plaintext_and_they_do_not(gathered: Gathered) -> None:
    config = {key: value for key, value in gathered.config.items() if key != "tls"}
    config |= {"listen": "127.0.0.1:0", "predict_listen": "127.0.0.1:0"}
    code, findings = doctor(gathered.site, config, insecure=True)
    assert code == 5
    assert "speaks TLS, and we do not" in findings["coordinator"]["message"]


def test_they_speak_plaintext_or_are_of_another_federation(
    plain_site: Site, gathered: Gathered
) -> None:
    site = plain_site
    People(10).write(site.path, "bank")
    (site.path / "id.secret").chmod(0o600)
    site.start_coordinator(site.coordinator_config(["bank", "shop"], {}))
    config = site.client_config("bank")
    code, findings = doctor(site, config, insecure=True)
    assert (code, failures(findings)) == (0, []), findings
    code, findings = doctor(site, {**config, "tls": gathered.config["tls"]})
    assert (code, failures(findings)) == (5, ["coordinator"])
    assert "speaks plaintext, and we speak TLS" in findings["coordinator"]["message"]
    code, findings = doctor(site, {**config, "federation": "loans"}, insecure=True)
    assert (code, failures(findings)) == (6, ["coordinator"])
    assert 'of federation "trial"' in findings["coordinator"]["message"]


def test_the_coordinator_is_down_and_peers_are_remembered(gathered: Gathered) -> None:
    """The last test: it ends the coordinator."""
    assert gathered.coordinator.terminate() == 0
    code, findings = doctor(gathered.site, gathered.config)
    assert (code, failures(findings)) == (4, ["coordinator"])
    assert "refuses connections" in findings["coordinator"]["message"]
    assert findings["peer shop"]["status"] == "ok"
