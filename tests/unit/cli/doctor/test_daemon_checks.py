"""What `doctor` makes of what daemons say of themselves."""

import pytest

from laser_vfl.cli.doctor import daemon_checks
from laser_vfl.cli.doctor.daemon_checks import AskingAs, check_coordinator, check_peers
from laser_vfl.cli.doctor.finding import failed, ok
from laser_vfl.config.address import Address
from laser_vfl.core.errors import AddressError, ExitCode, MismatchError
from laser_vfl.core.release import __version__
from laser_vfl.remote.greetings import Greeting
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import client_of
from laser_vfl.transport.protocol import PROTOCOL_VERSION

CALLER = AskingAs(client_of("churn", "bank"), Credentials("churn"), None)
TCALLER = Address("127.0.0.1", 7000)


def greeting(client="", **more):
    said = {
        "federation": "churn",
        "client": client,
        "release": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "clock_offset_s": 0.1,
        "problem": "",
        "addresses": {},
    }
    return Greeting(**said | more)


@pytest.fixture
def said(monkeypatch):
    """What each address says, or what keeps us from it."""
    answers = {}

    def diagnose(address, to, files):
        if isinstance(answers[str(address)], AddressError):
            return failed("peer", answers[str(address)])
        return ok("peer", f"{address} answers")

    def greet(address, access, me):
        if isinstance(answers[address], MismatchError):
            raise answers[address]
        return answers[address]

    monkeypatch.setattr(daemon_checks, "diagnose", diagnose)
    monkeypatch.setattr(daemon_checks, "greet_coordinator", greet)
    monkeypatch.setattr(daemon_checks, "greet_peer", greet)
    return answers


def found(said, answer):
    said[str(TCALLER)] = answer
    return [(f.status, f.check, f.message) for f in check_coordinator(TCALLER, CALLER)]


def test_a_coordinator_that_would_have_us(said):
    checks = [one[:2] for one in found(said, greeting())]
    assert checks == [("ok", "peer"), ("ok", "clock"), ("ok", "roster")]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (greeting(problem='"bank" is not on the roster; add it'), '"bank" is not on the roster'),
        (greeting(federation="loans"), 'of federation "loans"'),
        (greeting(client="shop"), '127.0.0.1:7000 is "shop"'),
        (greeting(protocol_version=99), "speaks protocol version 99"),
        (MismatchError("does not answer such questions"), "does not answer such questions"),
    ],
)
def test_one_that_would_not(said, answer, words):
    status, _, message = found(said, answer)[-1]
    assert status == "FAIL"
    assert words in message


def test_the_fix_is_the_coordinators_own(said):
    said[str(TCALLER)] = greeting(problem="what; do this\x1b")
    finding = list(check_coordinator(TCALLER, CALLER))[-1]
    assert (finding.message, finding.fix) == ("the coordinator says: what", "do this?")
    assert finding.exit_code == ExitCode.MISMATCH


@pytest.mark.parametrize(
    ("offset_s", "status", "words"),
    [
        (29, "ok", "29.0 s ahead of"),
        (31, "warn", "31.0 s ahead of"),
        (-31, "warn", "31.0 s behind"),
        (-29, "ok", "29.0 s behind"),
    ],
)
def test_clocks_that_differ_are_a_warning(said, offset_s, status, words):
    [clock] = [one for one in found(said, greeting(clock_offset_s=offset_s)) if one[1] == "clock"]
    assert clock[0] == status
    assert words in clock[2]


def anywhere(client, address):
    return True


def test_a_peer_that_is_not_dialled_is_not_dialled_by_doctor_either(said):
    (found,) = check_peers(
        {"shop": "127.0.0.1:1"}, CALLER, lambda client, address: False, remembered=True
    )
    assert (found.status, int(found.exit_code)) == ("FAIL", 6)
    assert "which this client does not dial" in found.message


def test_of_a_peer_the_clock_is_told_only_if_it_is_wrong(said):
    for offset_s, checks in ((29, ["peer"]), (31, ["peer", "clock"])):
        said[str(TCALLER)] = greeting("shop", clock_offset_s=offset_s)
        found = check_peers({"shop": str(TCALLER)}, CALLER, anywhere, remembered=False)
        assert [finding.check for finding in found] == checks


def test_another_release_is_a_warning(said):
    assert found(said, greeting(release="9.9"))[0][0] == "warn"


def test_peers_but_not_ourselves(said):
    said["127.0.0.1:1"] = greeting("shop")
    said["127.0.0.1:2"] = AddressError("refuses connections", hint="start it")
    said["127.0.0.1:3"] = greeting("shop")
    addresses = {
        "bank": "127.0.0.1:9",
        "shop": "127.0.0.1:1",
        "telco": "127.0.0.1:2",
        "clinic": "127.0.0.1:3",
        "gym": "nowhere",
    }
    now = list(check_peers(addresses, CALLER, anywhere, remembered=False))
    assert [f.status for f in now] == ["ok", "FAIL", "FAIL", "FAIL"]
    assert [int(f.exit_code) for f in now] == [0, 4, 6, 6]
    assert 'advertises "nowhere"' in now[-1].message
    once = list(check_peers(addresses, CALLER, anywhere, remembered=True))
    assert [f.status for f in once] == ["ok", "warn", "FAIL", "FAIL"]
    assert once[1].exit_code == ExitCode.OK
