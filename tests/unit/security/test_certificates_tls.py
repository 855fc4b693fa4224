"""Certificates as OpenSSL sees them."""

import shutil
import ssl
import subprocess
from dataclasses import replace

import pytest

from laser_vfl.security.certificate_files import (
    init_authority,
    issue,
    make_federation,
    write_request,
)
from laser_vfl.security.certificates import (
    read_certificate,
)
from tests.support.data.certificate_parties import BANK, COORDINATOR, CRM, NOW, SHOP


def _shake_hands(trust, server, caller, server_name):
    """Play both ends of a TLS handshake in memory; raise what either end objects to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.with_suffix(".pem"), server.with_suffix(".key"))
    context.load_verify_locations(trust)
    context.verify_mode = ssl.CERT_REQUIRED
    towards_server, towards_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = context.wrap_bio(towards_server, towards_caller, server_side=True)
    context = ssl.create_default_context(cafile=trust)
    context.load_cert_chain(caller.with_suffix(".pem"), caller.with_suffix(".key"))
    here = context.wrap_bio(towards_caller, towards_server, server_hostname=server_name)
    waiting = [here, there]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    return there.getpeercert()["subjectAltName"]


def test_daemons_of_two_authorities_shake_hands(tmp_path):
    for organisation, parties in {"bank": [BANK, CRM], "coordinator": [COORDINATOR]}.items():
        authority = init_authority(tmp_path / organisation, "churn", organisation, now=NOW)
        issue(authority, tmp_path / organisation, parties, now=NOW)
    trust = tmp_path / "trust.pem"
    trust.write_bytes(
        b"".join((tmp_path / each / "ca.pem").read_bytes() for each in ("bank", "coordinator"))
    )
    server = tmp_path / "coordinator" / "coordinator"
    for name, identity in (("bank", BANK), ("bank-crm", CRM)):
        caller = tmp_path / "bank" / name
        seen = _shake_hands(trust, server, caller, "coordinator.churn")
        assert ("URI", identity.uri) in seen
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _shake_hands(trust, server, tmp_path / "bank" / "bank", "bank.client.churn")


def test_an_organisation_cannot_serve_under_anothers_name(tmp_path):
    authority = init_authority(tmp_path, "churn", "bank", now=NOW)
    issue(authority, tmp_path, [BANK], now=NOW)
    liar = replace(authority, organisation="")
    issue(liar, tmp_path, [SHOP], now=NOW)
    trust = tmp_path / "ca.pem"
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        _shake_hands(trust, tmp_path / "shop", tmp_path / "bank", "shop.client.churn")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_openssl_agrees(tmp_path):
    make_federation(tmp_path, "churn", ["bank"])

    def openssl(*arguments):
        command = ["openssl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    for purpose in ("sslserver", "sslclient"):
        arguments = ("-x509_strict", "-purpose", purpose, "-CAfile", "ca.pem", "bank.pem")
        assert openssl("verify", *arguments).stdout == "bank.pem: OK\n"
    assert openssl("verify", "-CAfile", "bank.pem", "coordinator.pem").returncode != 0
    text = openssl("x509", "-in", "bank.pem", "-noout", "-text").stdout
    for line in (
        "Subject: CN = bank",
        "URI:spiffe://churn/client/bank, DNS:bank.client.churn",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "ecdsa-with-SHA256",
        "ASN1 OID: prime256v1",
        "CA:FALSE",
    ):
        assert line in text
    fingerprint = openssl("x509", "-in", "bank.pem", "-noout", "-fingerprint", "-sha256").stdout
    ours = read_certificate(tmp_path / "bank.pem").fingerprint
    assert fingerprint.strip().split("=")[1].replace(":", "").lower() == ours
    write_request(tmp_path / "new", BANK)
    assert openssl("req", "-in", "new/bank.csr", "-noout", "-verify").returncode == 0
