"""Where a member says it is must not lead to the machine of whoever dials it."""

import asyncio
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from laser_vfl.client.serving.peer_directory import PeerDirectory
from laser_vfl.client.session.peer_address import LOOKUPS_EACH, NOWHERE, DialRule
from laser_vfl.config.address import Address
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.v1 import coordinator_pb2 as pb

HOST = "10.0.0.5:7001"
LOOPBACK = [
    "127.0.0.1:6379",
    "127.8.9.10:80",
    "localhost:80",
    "LOCALHOST:80",
    "localhost.:80",
    "x.localhost:80",
    "[::1]:80",
    "[::ffff:127.0.0.1]:80",
    "0x7f.1:80",
    "0x7f000001:80",
]
LINK_LOCAL = ["169.254.169.254:80", "[fe80::1]:80"]
NO_HOST = ["0.0.0.0:80", "[::]:80", "224.0.0.1:80", "[ff02::1]:80", "255.255.255.255:80", "0x0:1"]
OTHERS = ["10.0.0.6:80", "192.168.1.2:7001", "[2001:db8::1]:80", "203.0.113.7:1", "shop:7001"]


def rule(own: str = HOST, *, dial_local: bool = False) -> DialRule:
    return DialRule(Address.parse(own), dial_local=dial_local)


@pytest.mark.parametrize("address", [*LOOPBACK, *LINK_LOCAL, *NO_HOST])
def test_a_client_with_an_address_of_its_own_dials_no_machine_but_others(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = rule()
    assert not mine.allows("shop", address)
    assert not mine.allows("shop", address)
    assert caplog.text.count("it is not dialled there") == 1, "it is said once"


@pytest.mark.parametrize("address", OTHERS)
def test_addresses_of_other_hosts_are_dialled(address: str) -> None:
    for own in (HOST, "bank:7001", "127.0.0.1:7001"):
        assert rule(own).allows("shop", address)


@pytest.mark.parametrize("own", ["127.0.0.1:7001", "localhost:7001", "[::1]:7001"])
@pytest.mark.parametrize("address", LOOPBACK)
def test_a_federation_on_one_machine_needs_no_key(own: str, address: str) -> None:
    assert rule(own).allows("shop", address)


def test_who_is_on_loopback_dials_no_link_local_address_and_the_other_way_round() -> None:
    assert not rule("127.0.0.1:7001").allows("shop", "169.254.169.254:80")
    assert not rule("169.254.1.1:7001").allows("shop", "127.0.0.1:80")
    assert rule("169.254.1.1:7001").allows("shop", "169.254.1.2:80")


def test_a_key_allows_it_but_for_what_is_no_host() -> None:
    mine = rule(dial_local=True)
    assert all(mine.allows("shop", address) for address in (*LOOPBACK, *LINK_LOCAL))
    assert not any(mine.allows("shop", address) for address in NO_HOST)


def directive(address: str) -> pb.Directive:
    said = pb.Directive()
    for client, where in (("bank", "127.0.0.1:7001"), ("shop", address), ("telco", "telco:1")):
        said.training.view.members.add(client=client, address=where)
        said.addresses.add(client=client, address=where)
    said.training.joiners.add(client="shop", address=address)
    return said


def screened(mine: DialRule, said: pb.Directive) -> pb.Directive:
    return asyncio.run(mine.screen_soon(said, "bank"))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names mean, and how often they were asked for."""
    meaning: dict[str, list[str]] = {"telco": ["10.0.0.7"]}

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        if host not in meaning:
            raise socket.gaierror(-2, "unknown")
        return [(0, 0, 0, "", (ip, 0)) for ip in meaning[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return meaning


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("address", [*LOOPBACK, *LINK_LOCAL, *NO_HOST])
def test_what_the_coordinator_says_is_screened_before_anybody_hears_it(address: str) -> None:
    said = screened(rule(), directive(address))
    members = {member.client: member.address for member in said.training.view.members}
    assert members == {"bank": "127.0.0.1:7001", "shop": NOWHERE, "telco": "telco:1"}
    assert [joiner.address for joiner in said.training.joiners] == [NOWHERE]
    assert [entry.client for entry in said.addresses] == ["bank", "telco"]
    called = pb.Directive()
    called.gathering.call.members.add(client="shop", address=address)
    assert screened(rule(), called).gathering.call.members[0].address == NOWHERE


@pytest.mark.parametrize("ips", [["127.0.0.1"], ["10.0.0.9", "::1"], ["169.254.169.254"]])
def test_a_name_is_judged_by_what_it_means(ips: list[str], names: dict[str, list[str]]) -> None:
    names["shop.example"] = ips
    said = screened(rule(), directive("shop.example:80"))
    assert said.training.view.members[1].address == NOWHERE
    names["shop.example"] = ["10.0.0.9"]
    said = screened(rule(), directive("shop.example:80"))
    assert said.training.view.members[1].address == "shop.example:80"


@pytest.mark.usefixtures("names")
def test_a_name_that_means_nothing_is_not_dialled() -> None:
    said = screened(rule(), directive("nobody.example:80"))
    assert said.training.view.members[1].address == NOWHERE


@pytest.mark.parametrize(
    ("listen", "is_dialled"),
    [("machine:7001", True), ("127.0.0.1:7001", True), ("0.0.0.0:7001", False)],
)
def test_the_own_name_may_mean_this_machine_only_if_this_client_is_reached_here_alone(
    listen: str, is_dialled: bool, names: dict[str, list[str]]
) -> None:
    """Debian has the name of a machine mean 127.0.1.1 there."""
    names["machine"] = ["127.0.1.1"]
    mine = DialRule(Address.parse("machine:7001"), dial_local=False, listen=Address.parse(listen))
    said = screened(mine, directive("machine:7002"))
    assert said.training.view.members[1].address == ("machine:7002" if is_dialled else NOWHERE)


def test_names_that_hang_hold_up_nobody_and_are_not_dialled(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a name server of its own can have it take its time for each name."""
    names["later.example"] = ["10.0.0.9"]
    known, hanging = socket.getaddrinfo, threading.Event()
    asked: list[str] = []

    def getaddrinfo(host: str, *rest: Any, **keys: Any) -> list[Any]:
        asked.append(host)
        if host != "telco":
            hanging.wait(30.0)
        return known(host, *rest, **keys)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def play() -> None:
        mine = rule()
        begun_at = time.monotonic()
        for number in range(20):
            said = mine.screen(directive(f"x{number}.example:80"), "bank")
            assert said.training.view.members[1].address == NOWHERE
        await mine.screen_soon(directive("later.example:80"), "bank")
        await asyncio.to_thread(lambda: None)
        assert time.monotonic() - begun_at < 2.0
        said = mine.screen(directive("later.example:80"), "bank")
        assert said.training.view.members[2].address == "telco:1", "others are not affected"
        assert len([host for host in asked if host.startswith("x")]) == LOOKUPS_EACH
        hanging.set()
        async with asyncio.timeout(20.0):
            while said.training.view.members[1].address == NOWHERE:
                await asyncio.sleep(0.01)
                said = mine.screen(directive("later.example:80"), "bank")
        assert said.training.view.members[1].address == "later.example:80"

    asyncio.run(play())
    assert asked.count("telco") == 1


@pytest.mark.usefixtures("names")
def test_that_a_name_means_nothing_is_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = socket.getaddrinfo, []

    def getaddrinfo(host: str, *rest: Any, **keys: Any) -> list[Any]:
        asked.append(host)
        return known(host, *rest, **keys)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    mine = rule()
    for _ in range(5):
        screened(mine, directive("nobody.example:80"))
    assert asked.count("nobody.example") == 1


def test_what_was_learnt_by_an_earlier_release_is_not_dialled_either() -> None:
    state: Any = SimpleNamespace(
        read_addresses=lambda: {"shop": "127.0.0.1:6379", "telco": "telco:1"}
    )
    peers = PeerDirectory("bank", state, Credentials(), PeerTraffic(), rule().allows)
    assert peers.known_clients == {"telco"}
