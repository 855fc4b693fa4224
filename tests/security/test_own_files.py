"""What an organisation forgets about its own keys and certificates."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from laser_vfl.core.errors import ExitCode
from laser_vfl.security.certificate_files import PARTY_DAYS, init_authority, issue
from laser_vfl.security.identity import coordinator_of
from laser_vfl.security.token_file import add_token
from tests.support.attacks.attack_results import Results
from tests.support.daemons.harness import Site, eventually
from tests.support.data.people import People

OPEN = 0o644


@pytest.mark.core
@pytest.mark.parametrize("which", ["tls.key", "id_secret_file", "tokens_file"])
def test_a_daemon_takes_no_secret_that_others_can_read(
    which: str, site: Site, results: Results
) -> None:
    People(10).write(site.path, "bank")
    config = site.client_config("bank", serving={"tokens_file": "tokens.txt"})
    add_token(site.path / "tokens.txt", "crm", datetime.now(UTC), None)
    key = site.path / "bank.key"
    shutil.copy(config["tls"]["key"], key)
    config["tls"] = {**config["tls"], "key": key.name}
    secret = {"tls.key": key, "id_secret_file": site.path / "id.secret"}.get(
        which, site.path / "tokens.txt"
    )
    secret.chmod(OPEN)
    bank = site.start_client(config)
    exit_code = bank.wait_exit()
    assert exit_code in (ExitCode.CONFIG, ExitCode.DATA, ExitCode.IDENTITY)
    (line,) = (line for line in bank.stderr.splitlines() if " INFO " not in line)
    assert secret.name in line
    assert "chmod 600" in line
    assert "ready" not in bank.stdout
    results.note("secrets open to others", "no start", which)


@pytest.mark.core
def test_a_certificate_that_is_about_to_end_is_not_forgotten(site: Site, results: Results) -> None:
    certs = site.path / "certs"
    now = datetime.now(UTC)
    authority = init_authority(certs, "trial", now=now - timedelta(days=PARTY_DAYS))
    made_at = now - timedelta(days=PARTY_DAYS) + timedelta(minutes=30)
    issue(authority, certs, [coordinator_of("trial")], now=made_at)
    tls = {key: str(certs / file) for key, file in FILES.items()}
    coordinator = site.start_coordinator(site.coordinator_config(["bank"], {}, tls=tls))
    coordinator.wait_for("the certificate ends within an hour")
    (noted,) = eventually(lambda: _noted(site), "it is in the audit log")
    assert noted["within"] == "an hour"
    results.note("a certificate about to end", "a warning, and an audit line")


def _noted(site: Site) -> list[dict[str, Any]]:
    lines = (site.path / "coordinator-state" / "audit.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "certificate_ends"]


FILES = {"ca": "ca.pem", "cert": "coordinator.pem", "key": "coordinator.key"}
