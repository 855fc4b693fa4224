"""Certificates that change while daemons run, authorities of one's own, tokens: real processes."""

import json
import shutil
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from laser_vfl import Predictor
from laser_vfl.core.errors import IdentityError
from laser_vfl.security.authority import certificate_pem, key_pem, new_key
from laser_vfl.security.certificate_files import init_authority, issue, load_authority, renew
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop"]


def _serial(process: Process, address: str, name: str) -> int:
    """The serial number of the certificate that a daemon shows to whoever comes."""
    files = process.tls
    context = ssl.create_default_context(cafile=files["ca"])
    context.load_cert_chain(files["cert"], files["key"])
    context.set_alpn_protocols(["h2"])
    host, port = address.rsplit(":", 1)

    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        assert secure.version() == "TLSv1.3"
        found = secure.getpeercert()
    assert found is not None
    return int(str(found["serialNumber"]), 16)


def _audit(site: Site, name: str, event: str) -> list[dict[str, Any]]:
    path = site.path / f"{name}-state" / "audit.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.core
def test_certificates_change_while_everybody_trains_and_serves(site: Site) -> None:
    """The old ones are gone from the disk, and the authority's successor signs the new ones."""
    assert site.authority is not None
    certs = site.path / "certs"
    identities = [coordinator_of("trial"), *(client_of("trial", name) for name in ROSTER)]
    authority = init_authority(certs, "trial", now=datetime.now(UTC))
    issue(authority, certs, identities, now=datetime.now(UTC))
    site.authority.directory, site.authority._ca = certs, authority
    pair = Federation(site, ROSTER, {"epochs": 1})
    bank = pair.clients["bank"]
    daemons = {"coordinator": pair.coordinator, **pair.clients}
    names = {"coordinator": "coordinator.trial", "bank": "bank.client.trial"}
    before = {name: _serial(bank, daemons[name].wait_ready(), dns) for name, dns in names.items()}

    renew(load_authority(certs), certs, identities, now=datetime.now(UTC))
    for name, process in daemons.items():
        process.wait_for("the certificate has changed")
        (line,) = eventually(
            lambda name=name: _audit(site, name, "certificate_changed"), "it is in the audit log"
        )
        assert line["identity"].endswith(name)
    for name, dns in names.items():
        assert _serial(bank, daemons[name].wait_ready(), dns) != before[name]

    # Nothing is restarted, and all of it works: the session, the exchange, and questions to peers.
    run = pair.runs()[0]
    retrain = site.run("retrain", "retrain", "--config", "coordinator.yaml")
    assert retrain.wait_exit() == 0, retrain.stderr
    eventually(lambda: set(pair.runs()).isdisjoint({run}), "both serve a new model")
    pair.wait_whole()
    for process in daemons.values():
        assert process.alive
        assert "Traceback" not in process.stderr


def test_every_organisation_has_an_authority_of_its_own(site: Site) -> None:
    now, federation = datetime.now(UTC), "trial"
    authorities = {}
    for name in ("coordinator", *ROSTER):
        folder = site.path / f"{name}-certs"
        who = coordinator_of(federation) if name == "coordinator" else client_of(federation, name)
        authority = init_authority(folder, federation, name, now=now)
        issue(authority, folder, [who], now=now)
        authorities[name] = f"{name}-certs/ca.pem"
    people = People(60)

    def tls(name: str) -> dict[str, Any]:
        folder = f"{name}-certs"
        pair = {"cert": f"{folder}/{name}.pem", "key": f"{folder}/{name}.key"}
        return {"authorities": authorities, **pair}

    site.start_coordinator(site.coordinator_config(ROSTER, {"epochs": 1}, tls=tls("coordinator")))
    for name in ROSTER:
        people.write(site.path, name)
    clients = [
        site.start_client(site.client_config(name, tls=tls(name)), "--exit-after-training")
        for name in ROSTER
    ]
    assert [client.wait_exit() for client in clients] == [0, 0]

    # The bank's authority signs a certificate for the shop: nobody believes it.
    forged = site.path / "forged"
    forged.mkdir()
    _forge(site.path / "bank-certs", client_of(federation, "shop"), forged)
    config = site.client_config("shop", tls={**tls("shop"), **_pair(forged, "shop")})
    shutil.rmtree(site.path / "shop-state")
    impostor = site.start_client({**config, "connect_timeout_s": 2.0}, file="impostor")
    assert impostor.wait_exit() == 5
    assert "may not vouch for spiffe://trial/client/shop" in impostor.stderr


def _pair(folder: Path, name: str) -> dict[str, str]:
    return {"cert": str(folder / f"{name}.pem"), "key": str(folder / f"{name}.key")}


def _forge(authority: Path, who: Identity, folder: Path) -> None:
    """Sign a certificate that the authority may not sign, and that TLS alone takes for good."""
    key = new_key()
    (folder / f"{who.name}.key").touch(0o600)
    (folder / f"{who.name}.key").write_bytes(key_pem(key))
    ca = load_authority(authority)
    template = x509.load_pem_x509_certificate((authority / "bank.pem").read_bytes())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(template.subject)
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(who.uri)]), critical=False
        )
        .sign(ca.key, hashes.SHA256())
    )
    (folder / f"{who.name}.pem").write_bytes(certificate_pem(certificate))


@pytest.mark.core
def test_a_token_in_place_of_a_certificate(site: Site) -> None:
    assert site.authority is not None
    tokens, token = site.path / "tokens.txt", "t" * 40
    tokens.touch(0o600)
    tokens.write_text(f"crm {token}\n")
    alone = Federation(site, ["bank"], {}, serving={"tokens_file": "tokens.txt"}, token=token)
    address = alone.clients["bank"].wait_predict()
    ca = site.authority.issue("bank")["ca"]

    def predictor(token: str) -> Predictor:
        return Predictor(address, ca=ca, token=token, name="bank.client.trial", deadline=10.0)

    with predictor(token) as right:
        assert not any(right.predict(alone.ids).errors)
    with predictor("x" * 40) as wrong, pytest.raises(IdentityError, match="the token is none"):
        wrong.predict(alone.ids)
    (site.path / "token.txt").write_text(token + "\n")
    (site.path / "ids.csv").write_text("id\n" + "\n".join(alone.ids) + "\n")
    command = ["predict", "--client", address, "--ids", "ids.csv", "--ca", ca]
    shown = ["--token-file", "token.txt", "--name", "bank.client.trial"]
    asked = site.run("predict", *command, *shown)
    assert asked.wait_exit() == 0, asked.stderr
    tokens.write_text(f"web {'w' * 40}\n")
    with predictor(token) as late, pytest.raises(IdentityError, match="the token is none"):
        late.predict(alone.ids)
    refusals = _audit(site, "bank", "refused")
    assert {line["code"] for line in refusals} == {"IdentityError"}
    assert token not in (site.path / "bank-state" / "audit.jsonl").read_text()
    assert token not in alone.clients["bank"].stderr
