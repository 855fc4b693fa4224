"""Whatever can be wrong on the way to a daemon is told apart from everything else."""

import socket
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from doctor_servers import server_context, serving

from laser_vfl.cli.doctor import network_diagnosis as doctor_network
from laser_vfl.cli.doctor.network_diagnosis import diagnose, identity_shown
from laser_vfl.config.address import Address
from laser_vfl.core.errors import ExitCode
from laser_vfl.security.certificate_files import init_authority, issue
from laser_vfl.security.credentials import CredentialFiles
from laser_vfl.security.identity import client_of, coordinator_of

pytestmark = pytest.mark.core

COORDINATOR = coordinator_of("churn")
BANK, SHOP = client_of("churn", "bank"), client_of("churn", "shop")
NOW = datetime.now(UTC)
LONG_AGO, NEXT_WEEK = NOW - timedelta(days=60), NOW + timedelta(days=7)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Daemons of a federation, certified now, long ago and next week, and by others."""
    folder = tmp_path_factory.mktemp("certs")
    authority = init_authority(folder / "ours", "churn", now=LONG_AGO)
    parties = [COORDINATOR, BANK, SHOP]
    issue(authority, folder / "ours", parties, now=NOW)
    issue(authority, folder / "old", parties, now=LONG_AGO)
    issue(authority, folder / "early", parties, now=NEXT_WEEK)
    foreign = init_authority(folder / "foreign", "churn", now=NOW)
    issue(foreign, folder / "foreign", parties, now=NOW)
    other = init_authority(folder / "other", "loans", now=NOW)
    issue(other, folder / "other", [coordinator_of("loans")], now=NOW)
    return folder


@pytest.fixture
def files(certs):
    return bank_files(certs / "ours", certs / "ours" / "ca.pem")


def bank_files(folder, ca):
    return CredentialFiles(folder / "bank.pem", folder / "bank.key", ca)


def context_of(certs, folder="ours", name="coordinator", trust="ours", **more):
    return server_context(certs / folder / name, certs / trust / "ca.pem", **more)


def fails(finding, code, *said):
    assert finding.status == "FAIL", finding
    assert finding.exit_code == code, finding
    assert finding.fix
    for words in said:
        assert words in finding.message + finding.fix, finding


def test_all_is_well(certs, files):
    with serving(context_of(certs)) as address:
        finding = diagnose(address, COORDINATOR, files)
    assert finding.status == "ok", finding
    assert finding.check == "coordinator"
    assert "spiffe://churn/coordinator" in finding.message
    with serving(context_of(certs, name="shop")) as address:
        finding = diagnose(address, SHOP, files)
    assert (finding.status, finding.check) == ("ok", "peer shop"), finding


def test_a_name_that_nobody_has(files):
    finding = diagnose(Address("nowhere.invalid", 7000), COORDINATOR, files)
    fails(finding, ExitCode.ADDRESS, "nowhere.invalid", "DNS")


def test_nobody_listens(files):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
    fails(diagnose(address, COORDINATOR, files), ExitCode.ADDRESS, "refuses connections")


def test_a_host_that_never_answers(files, monkeypatch):
    def never(*_):
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    finding = diagnose(Address("127.0.0.1", 7000), COORDINATOR, files)
    fails(finding, ExitCode.ADDRESS, "does not answer", "firewall")


def test_a_daemon_that_hangs(files, monkeypatch):
    monkeypatch.setattr(doctor_network, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.ADDRESS, "accepts connections and then says nothing")


def test_an_older_tls(certs, files):
    context = context_of(certs)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "does not speak TLS 1.3")


def test_their_certificate_is_of_a_foreign_authority(certs, files):
    with serving(context_of(certs, "foreign")) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "spiffe://churn/coordinator is not from our authority")
    assert "is this its address" not in finding.fix
    with serving(context_of(certs, "foreign", "shop")) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "spiffe://churn/client/shop", "is this its address?")


@pytest.mark.parametrize(
    ("folder", "said"), [("old", "has expired"), ("early", "is not valid yet")]
)
def test_their_certificate_is_of_another_time(certs, files, folder, said):
    with serving(context_of(certs, folder)) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, f"spiffe://churn/coordinator {said}")


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("foreign", "ours is not from an authority that they trust"),
        ("old", "ours has expired by their clock"),
    ],
)
def test_they_do_not_accept_ours(certs, folder, said):
    files = bank_files(certs / folder, certs / "ours" / "ca.pem")
    with serving(context_of(certs)) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "does not accept our certificate", said)


def test_they_hang_up_without_a_word(certs, files):
    with serving(context_of(certs), greeting=None) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "does not accept our certificate: they hang up")


def test_somebody_else_answers(certs, files):
    with serving(context_of(certs, name="shop")) as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(
        finding,
        ExitCode.IDENTITY,
        "expected coordinator.churn",
        "found DNS shop.client.churn, URI spiffe://churn/client/shop",
    )


def test_another_federation_answers(certs, files, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join((certs / at / "ca.pem").read_bytes() for at in ("ours", "other")))
    with serving(context_of(certs, "other")) as address:
        finding = diagnose(address, COORDINATOR, replace(files, ca=both))
    fails(finding, ExitCode.IDENTITY, "expected coordinator.churn", "found DNS coordinator.loans")


def test_plaintext_on_the_other_side(files):
    with serving() as address:
        finding = diagnose(address, COORDINATOR, files)
    fails(finding, ExitCode.IDENTITY, "speaks plaintext, and we speak TLS", "--insecure")


def test_no_daemon_at_all(certs, files):
    with serving(greeting=b"220 mail.example.org ESMTP\r\n") as address:
        fails(diagnose(address, COORDINATOR, files), ExitCode.IDENTITY, "TLS with")
        fails(diagnose(address, COORDINATOR, None), ExitCode.ADDRESS, "it is no daemon")
    with serving(context_of(certs, alpn=())) as address:
        fails(diagnose(address, COORDINATOR, files), ExitCode.ADDRESS, "it is no daemon")


def test_without_tls(certs, monkeypatch):
    monkeypatch.setattr(doctor_network, "TIMEOUT_S", 0.2)
    with serving() as address:
        assert diagnose(address, COORDINATOR, None).status == "ok"
    with serving(context_of(certs)) as address:
        finding = diagnose(address, COORDINATOR, None)
    fails(finding, ExitCode.IDENTITY, "speaks TLS, and we do not")


def test_an_authority_of_each_organisation(certs, files):
    ours, foreign = (certs / at / "ca.pem" for at in ("ours", "foreign"))
    several = replace(files, ca=None, authorities={"bank": ours, "coordinator": foreign})
    with serving(context_of(certs, "foreign")) as address:
        assert diagnose(address, COORDINATOR, several).status == "ok"
    with serving(context_of(certs)) as address:
        finding = diagnose(address, COORDINATOR, several)
        fails(finding, ExitCode.IDENTITY, "is not from our authority", str(foreign))
        fails(diagnose(address, SHOP, several), ExitCode.IDENTITY, "no authority for shop")


def test_who_shows_what_is_seen_whether_it_is_believed_or_not(certs):
    with serving(context_of(certs, "foreign", "shop")) as address:
        assert identity_shown(address) == SHOP
    with serving() as address:
        assert identity_shown(address) is None
    assert identity_shown(address) is None
